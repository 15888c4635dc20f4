// Runs one job: starts the server, waits for events, and passes them to the supervisor.
#pragma once

#include "cli/job/job_display.h"
#include "cli/job/job_plan.h"
#include "cli/process/signal_source.h"
#include "cli/text/console.h"

namespace muster {

// Returns when every process of the job is gone. Call it from the launcher's main thread (see
// ChildProcess). Throws Error if the server cannot be started.
JobOutcome WatchJob(const JobPlan& plan, SignalSource& signals, Console& console,
                    JobDisplay& display);

}  // namespace muster
