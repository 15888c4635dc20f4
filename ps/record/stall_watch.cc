#include "ps/record/stall_watch.h"

#include <algorithm>

namespace muster {

bool StallWatch::Look(double waited, double usual) {
  if (waited < next_.value_or(std::max(kFirst, kUsual * usual))) return false;
  next_ = 2 * waited;
  return true;
}

std::optional<double> StallWatch::Done(double waited) {
  if (!next_) return std::nullopt;
  next_.reset();
  return waited;
}

}  // namespace muster
