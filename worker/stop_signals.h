// How a worker that was started by hand is stopped.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace muster {

// From now on SIGINT and SIGTERM end the process with a line that says so; `who` begins it.
void SayWhenStopped(const std::string& who);

// … and SIGTERM asks it to leave the job when its part is done: its service manager stops it, or a
// scheduler that wants the machine. The job goes on without it, and nothing is computed twice. A
// second one ends it at once.
void LeaveOnSignal(uint32_t rank);

// Whether somebody wants this worker to leave; a signal sets it.
const std::atomic<bool>& WantedToLeave();

}  // namespace muster
