#include "common/base/adaptive_spin.h"

#include <algorithm>

namespace muster {

bool AdaptiveSpin::Begin(Clock::time_point now) {
  began_ = now;
  polls_ = short_waits_ >= kShortWaits && now >= paused_until_;
  return polls_;
}

void AdaptiveSpin::End(Clock::time_point now) {
  const Duration took = now - began_;
  if (!polls_) {
    short_waits_ = took <= kShort ? std::min(short_waits_ + 1, kShortWaits) : 0;
  } else if (took <= 2 * kPollTime) {
    tolerated_ = 0;
    if (++successes_ < kForgiven) return;
    successes_ = 0;
    pause_ = std::max<Duration>(pause_ / 2, kFirstPause);
  } else if (took <= kShort && ++tolerated_ <= kTolerated) {
    return;
  } else {
    successes_ = tolerated_ = short_waits_ = 0;
    paused_until_ = now + pause_;
    pause_ = std::min<Duration>(2 * pause_, kLongestPause);
  }
}

}  // namespace muster
