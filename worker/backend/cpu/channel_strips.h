// Helpers for kernels that iterate over the rows of a channels-last matrix and hold a few vectors
// of channels in registers. The channels are cut into strips of up to four vectors, and the
// remainder into single floats; the same code handles both.
#pragma once

#include <cstdint>
#include <type_traits>

#include "worker/backend/cpu/vec.h"

namespace muster::cpu {

// The number of floats in a FloatVec or a float.
template <typename Vec>
constexpr int64_t kWidth = sizeof(Vec) / sizeof(float);

template <typename Vec>
inline void AddTo(double* to, const Vec& vec) {
  if constexpr (kWidth<Vec> == 1) {
    *to += vec;
  } else {
    using Half = float __attribute__((vector_size(16)));
    using Doubles = double __attribute__((vector_size(32)));
    for (int half = 0; half < 2; ++half) {
      Half floats;
      std::memcpy(&floats, reinterpret_cast<const char*>(&vec) + half * sizeof(floats),
                  sizeof(floats));
      const Doubles sums = Load<Doubles>(to + half * 4) + __builtin_convertvector(floats, Doubles);
      std::memcpy(to + half * 4, &sums, sizeof(sums));
    }
  }
}

// Calls body.operator()<Vec, vectors>(first channel) for strips of at most `Most` (1, 2 or 4)
// vectors.
template <int Most, typename Body>
void ForChannelStrips(int64_t channels, const Body& body) {
  int64_t c = 0;
  if constexpr (Most >= 4) {
    for (; c + 4 * kLanes <= channels; c += 4 * kLanes) body.template operator()<FloatVec, 4>(c);
  }
  if constexpr (Most >= 2) {
    for (; c + 2 * kLanes <= channels; c += 2 * kLanes) body.template operator()<FloatVec, 2>(c);
  }
  for (; c + kLanes <= channels; c += kLanes) body.template operator()<FloatVec, 1>(c);
  for (; c < channels; ++c) body.template operator()<float, 1>(c);
}

// Calls body.operator()<Vec>(first channel) for all channels of a row.
template <typename Body>
inline void ForChannelVectors(int64_t channels, const Body& body) {
  int64_t c = 0;
  for (; c + kLanes <= channels; c += kLanes) body.template operator()<FloatVec>(c);
  for (; c < channels; ++c) body.template operator()<float>(c);
}

}  // namespace muster::cpu
