// Handlers of the signals that stop a worker started by hand.
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

// Whether a signal has asked this worker to leave the job.
const std::atomic<bool>& WantedToLeave();

}  // namespace muster
