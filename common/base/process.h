// Processes: their identity and size, and this one's parent, core dumps and suspensions.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace muster {

// Which process it was, so that another one, which was given its number later, is not taken for it.
struct ProcessIdentity {
  std::string host;
  int64_t pid = 0;
  uint64_t started = 0;  // in the kernel's ticks since the host began
};

std::string HostName();
ProcessIdentity ThisProcess();

// Whether a process of this host runs or is stopped. One that has ended and was not waited for is
// not alive.
bool IsAlive(const ProcessIdentity& process);

// What `top` shows as RES, of a process of this host or, with 0, of this one. Nothing if there is
// no such process.
std::optional<int64_t> ResidentBytes(int64_t pid = 0);

// Has the kernel kill this process when `parent` dies, and ends it at once (exit code kPeerFailed)
// if `parent` is not its parent any more. Call early in main.
void DieWithParent(pid_t parent);

// From now on no core dump holds what this process knows, and no other process of its user can
// attach to it or read its descriptors. Linux refuses this to nobody.
void KeepOutOfCoreDumps();

// Finds the times in which this process was suspended: stopped (SIGSTOP, Ctrl-Z), frozen, without a
// core, or busy with one thing.
//
// A process that waits for a sign of life must not count that time. What the others said meanwhile
// may still be unread, and those that were stopped together with this process said nothing.
//
// Used by one thread, or under one lock.
class SuspensionDetector {
 public:
  using Clock = std::chrono::steady_clock;

  // Look is called at least so often, whenever this process runs.
  explicit SuspensionDetector(Clock::duration usual) : usual_(usual) {}

  // The time since the last look, if that is longer ago than usual; else nothing. A part of the
  // usual time always counts: a process that is slow for good still runs into its deadlines.
  Clock::duration Look(Clock::time_point now = Clock::now());

 private:
  Clock::duration usual_;
  Clock::time_point last_ = Clock::now();
};

// When a wait began that does not count this process's suspension: later by it, yet never in the
// future. What was read at the end of the suspension is as new as it is.
inline SuspensionDetector::Clock::time_point WithoutSuspension(
    SuspensionDetector::Clock::time_point began, SuspensionDetector::Clock::duration suspension,
    SuspensionDetector::Clock::time_point now = SuspensionDetector::Clock::now()) {
  return std::min(now, began + suspension);
}

}  // namespace muster
