// How work of equal pieces is divided among workers that are not equally fast.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace muster {

// EvenPart's sizes.
std::vector<int64_t> EvenSizes(int64_t pieces, size_t parts);

// How many of the pieces each gets whose time for one is times[i] > 0, so that the longest,
// sizes[i] * times[i], is as short as it can be. Each gets `least` or more, where there are enough.
// A pure function: of several such divisions always the same one.
std::vector<int64_t> SplitByTime(int64_t pieces, std::span<const double> times, int64_t least = 0);

// What the slowest takes for its pieces.
double Longest(std::span<const int64_t> sizes, std::span<const double> times);

}  // namespace muster
