// Values that are not finite, for people.
#pragma once

#include <cmath>
#include <limits>

namespace muster {

// `value`, but a NaN without its sign, which means nothing and would be printed as "-nan".
template <typename T>
T UnsignedNan(T value) {
  return std::isnan(value) ? std::numeric_limits<T>::quiet_NaN() : value;
}

}  // namespace muster
