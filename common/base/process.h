// The identity and size of processes, and this process's parent, core dumps and suspensions.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace muster {

// Identifies a process, even if its PID is reused later.
struct ProcessIdentity {
  std::string host;
  int64_t pid = 0;
  uint64_t started = 0;  // kernel ticks since boot
};

std::string HostName();
ProcessIdentity ThisProcess();

// Whether a process on this host is running or stopped. A zombie is not alive.
bool IsAlive(const ProcessIdentity& process);

// Returns the resident size (RES in `top`) of a process on this host; 0: this process. Empty if
// there is no such process.
std::optional<int64_t> ResidentBytes(int64_t pid = 0);

// This process's environment with some variables, "NAME=value", replaced.
std::vector<std::string> EnvironmentWith(const std::vector<std::string>& replaced);
// A null-terminated array for exec; valid as long as `texts`.
std::vector<char*> Pointers(std::vector<std::string>& texts);

// Makes the kernel kill this process when `parent` dies, and exits at once (kPeerFailed) if
// `parent` is already gone. Call early in main.
void DieWithParent(pid_t parent);

// Prevents core dumps of this process. Afterwards, other processes of the same user can no longer
// attach to it or read its descriptors. Linux always allows this call.
void KeepOutOfCoreDumps();

// Detects periods in which this process was suspended: stopped (SIGSTOP, Ctrl-Z), frozen, without a
// CPU, or busy with one long task.
//
// A process that waits for heartbeats must not count this time. Messages that arrived in the
// meantime may be unread, and processes that were stopped together with this one sent none.
//
// Use from one thread or under one lock.
class SuspensionDetector {
 public:
  using Clock = std::chrono::steady_clock;

  // Call Look at least this often while the process runs.
  explicit SuspensionDetector(Clock::duration usual) : usual_(usual) {}

  // Returns the time since the last call if it exceeds `usual`, otherwise zero. A quarter of
  // `usual` is always subtracted, so that a permanently slow process still hits its deadlines.
  Clock::duration Look(Clock::time_point now = Clock::now());

 private:
  Clock::duration usual_;
  Clock::time_point last_ = Clock::now();
};

// Shifts the start of a wait by a suspension of this process, but never into the future. Messages
// read after the suspension count as having just arrived.
inline SuspensionDetector::Clock::time_point WithoutSuspension(
    SuspensionDetector::Clock::time_point began, SuspensionDetector::Clock::duration suspension,
    SuspensionDetector::Clock::time_point now = SuspensionDetector::Clock::now()) {
  return std::min(now, began + suspension);
}

}  // namespace muster
