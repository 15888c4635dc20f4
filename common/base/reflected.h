// Padding that mirrors at the outermost element, without repeating it: a b c → c b a b c b a.
#pragma once

#include <cstdint>

namespace muster {

// The element in [0, size) that is at position `at`, at any distance. constexpr because kernels
// also call it, with ints.
template <typename Int>
constexpr Int Reflected(Int at, Int size) {
  if (0 <= at && at < size) return at;
  if (size == 1) return 0;
  const Int period = 2 * (size - 1);
  const Int folded = (at % period + period) % period;
  return folded < size ? folded : period - folded;
}

// The positions of element `at` in a row of `size` elements with `pad` more on both sides, fewer
// than `size`: its own, then its mirror images.
struct ReflectedPlaces {
  int64_t at[3] = {};
  int count = 0;
};
constexpr ReflectedPlaces PlacesOf(int64_t at, int64_t size, int64_t pad) {
  ReflectedPlaces places{{at + pad}, 1};
  if (at > 0 && at <= pad) places.at[places.count++] = pad - at;
  const int64_t from_end = size - 1 - at;
  if (from_end > 0 && from_end <= pad) places.at[places.count++] = pad + size - 1 + from_end;
  return places;
}

}  // namespace muster
