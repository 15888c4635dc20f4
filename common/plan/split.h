// Divides equal pieces of work among workers of different speeds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace muster {

// Returns the sizes of the parts of EvenPart.
std::vector<int64_t> EvenSizes(int64_t pieces, size_t parts);

// Divides the pieces such that the longest time, max(sizes[i] * times[i]), is minimal. times[i] > 0
// is worker i's time for one piece. Each worker gets at least `least` pieces if there are enough.
// Deterministic: among equally good divisions, it always returns the same one.
std::vector<int64_t> SplitByTime(int64_t pieces, std::span<const double> times, int64_t least = 0);

// Returns the time that the slowest worker needs for its pieces.
double Longest(std::span<const int64_t> sizes, std::span<const double> times);

}  // namespace muster
