// The smallest sum of work that shows that a card computes: it multiplies, the CPU adds.
#pragma once

#include <string>
#include <vector>

namespace muster {

inline constexpr size_t kHelloNumbers = 6;
inline constexpr float kHelloA[kHelloNumbers] = {1, 2, 3, 4, 5, 6};
inline constexpr float kHelloB[kHelloNumbers] = {7, 8, 9, 10, 11, 12};
inline constexpr float kHelloSum = 217;

// Multiplies kHelloA and kHelloB on the one card that CUDA_VISIBLE_DEVICES of this process names,
// by the driver alone, and returns the products. `uuid`: which card that must be. For a process of
// its own. Throws Error.
std::vector<float> MultiplyOnCard(const std::string& library, const std::string& uuid);

}  // namespace muster
