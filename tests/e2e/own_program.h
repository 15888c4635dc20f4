// The model of own_program, which its test knows, too.
#pragma once

#include <algorithm>
#include <cstdint>

namespace muster::testing::own_program {

inline constexpr int64_t kSamples = 32, kBatch = 16;
inline constexpr const char* kNames[] = {"first/weights", "scalar", "last"};
inline constexpr int64_t kCounts[] = {70'000, 2, 30'000};  // several pieces of initial values

inline float Initial(int64_t j) { return static_cast<float>(j % 5); }
// The gradient of sample i's loss with respect to element j.
inline float Slope(int64_t i, int64_t j) { return static_cast<float>((i * 7 + j) % 13 - 6) / 8; }
// Mode "rate" sets the learning rate of each epoch, and has a variable that is averaged: in step s
// every slice gives this value.
inline double Rate(int64_t epoch) {
  return 0.5 / static_cast<double>(1 << std::min<int64_t>(epoch, 20));
}
inline float Averaged(int64_t step) { return static_cast<float>(step + 1); }

}  // namespace muster::testing::own_program
