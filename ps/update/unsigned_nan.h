// Formats non-finite values for messages.
#pragma once

#include <cmath>
#include <limits>

namespace muster {

// Removes the sign of a NaN, which is meaningless but would print as "-nan".
template <typename T>
T UnsignedNan(T value) {
  return std::isnan(value) ? std::numeric_limits<T>::quiet_NaN() : value;
}

}  // namespace muster
