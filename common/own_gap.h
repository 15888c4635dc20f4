// Time in which this process did not run: stopped (SIGSTOP, Ctrl-Z), frozen, or without a core.
//
// Whoever waits for a sign of life must not count it. What the others said meanwhile may still be
// unread, and those that were stopped together with this process said nothing.
#pragma once

#include <chrono>

namespace muster {

// Used by one thread, or under one lock.
class OwnGap {
 public:
  using Clock = std::chrono::steady_clock;

  // Look is called at least so often, whenever this process runs.
  explicit OwnGap(Clock::duration usual) : usual_(usual) {}

  // The time since the last look, if that is longer ago than usual; else nothing. A part of the
  // usual time always counts: a process that is slow for good still runs into its deadlines.
  Clock::duration Look(Clock::time_point now = Clock::now()) {
    const Clock::duration since = now - last_;
    last_ = now;
    return since > usual_ ? since - usual_ / 4 : Clock::duration::zero();
  }

 private:
  Clock::duration usual_;
  Clock::time_point last_ = Clock::now();
};

}  // namespace muster
