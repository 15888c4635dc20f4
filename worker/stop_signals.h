// Handlers of the signals that stop a worker.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace muster {

// From now on the stop signals end the process after writing a line that names `who`.
void SayWhenStopped(const std::string& who);

// Like SayWhenStopped, but SIGHUP and the first SIGTERM (from a service manager or scheduler) make
// the worker leave the job after its current work. The job continues without it, and no work is
// repeated. A second SIGTERM ends the process at once.
void LeaveOnSignal(uint32_t rank);

// For a process that a launcher or a program started: a stop signal takes effect after
// kFinishStepSeconds, but at once if it comes from the parent, or for the second time.
void FinishStepOnSignal();

// Whether a signal has asked this worker to leave the job.
const std::atomic<bool>& WantedToLeave();

}  // namespace muster
