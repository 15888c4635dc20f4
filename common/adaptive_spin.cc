#include "common/adaptive_spin.h"

#include <algorithm>

namespace muster {

void AdaptiveSpin::Learn(Duration took) {
  if (!looks_) {
    short_waits_ = took <= kShort ? std::min(short_waits_ + 1, kShortWaits) : 0;
    pause_left_ = std::max(pause_left_ - 1, 0);
    return;
  }
  looks_ = false;
  if (took <= 2 * kLook) {
    if (++successes_ < kForgiven) return;
    successes_ = 0;
    pause_ = std::max(pause_ / 2, kFirstPause);
    return;
  }
  successes_ = short_waits_ = 0;
  pause_left_ = pause_;
  pause_ = std::min(2 * pause_, kLongestPause);
}

}  // namespace muster
