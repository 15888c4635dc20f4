// Runs one job: starts the server, waits for what happens, and has the supervisor decide.
#pragma once

#include "cli/job/job_display.h"
#include "cli/job/job_plan.h"
#include "cli/process/signal_source.h"
#include "cli/text/console.h"

namespace muster {

// For the command line of the next server: "120,4711.250,signal 9"; -1 for an unknown step.
std::string LossArgument(const ServerLoss& loss);

// Returns when every process of the job is gone: nothing outlives this call. For the launcher's
// main thread (see ChildProcess). Throws Error where the server cannot be started.
JobOutcome WatchJob(const JobPlan& plan, SignalSource& signals, Console& console,
                    JobDisplay& display);

}  // namespace muster
