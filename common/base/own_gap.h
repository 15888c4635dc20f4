// Time in which this process looked at nothing: stopped (SIGSTOP, Ctrl-Z), frozen, without a core,
// or busy with one thing.
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

// When a wait began that this process's own gap is not to count for: later by it, yet never in the
// future. What was read at the end of the gap is as new as it is.
inline OwnGap::Clock::time_point WithoutGap(OwnGap::Clock::time_point began,
                                            OwnGap::Clock::duration gap,
                                            OwnGap::Clock::time_point now = OwnGap::Clock::now()) {
  return std::min(now, began + gap);
}

}  // namespace muster
