// How a worker that was started by hand is stopped.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace muster {

// From now on SIGINT and SIGTERM end the process with a line that says so; `who` begins it.
void SayWhenStopped(const std::string& who);

// SIGTERM requests that the worker leave the job when its part is done. A service manager or a
// scheduler sends it. The job continues without the worker, and nothing is computed twice. A second
// SIGTERM ends the worker at once.
void LeaveOnSignal(uint32_t rank);

// Whether somebody wants this worker to leave; a signal sets it.
const std::atomic<bool>& WantedToLeave();

}  // namespace muster
