// Time in which this process did not run: stopped (SIGSTOP, Ctrl-Z), frozen, or without a core.
//
// Whoever waits for a sign of life must not count it. What the others said meanwhile may still be
// unread, and those that were stopped together with this process said nothing.
#pragma once

#include <algorithm>
#include <chrono>

namespace muster {

// Used by one thread, or under one lock.
class OwnGap {
 public:
  using Clock = std::chrono::steady_clock;

  // Look is called at least so often, whenever this process runs.
  explicit OwnGap(Clock::duration usual) : usual_(usual) {}

  // By how much the last look is longer ago than it should be.
  Clock::duration Look(Clock::time_point now = Clock::now()) {
    const Clock::duration gap = std::max(now - last_ - usual_, Clock::duration::zero());
    last_ = now;
    return gap;
  }

 private:
  Clock::duration usual_;
  Clock::time_point last_ = Clock::now();
};

}  // namespace muster
