// Named quantities, such as an accuracy, that a program reports beside its loss (muster_add_scalar
// in client/muster.h), and the metrics of a network (metrics.h): sums over samples.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace muster {

struct ScalarSum {
  double sum = 0;
  int64_t samples = 0;  // of the slices or blocks that reported it

  double Mean() const { return sum / static_cast<double>(samples); }
};

// By name.
using ScalarSums = std::map<std::string, ScalarSum, std::less<>>;

inline constexpr size_t kMostScalars = 32;
// 1 to 64 characters of [A-Za-z0-9_./-].
bool IsScalarName(std::string_view name);

// Adds `more` to `sums`. Leaves out new names when there are kMostScalars, so that a program that
// makes up names cannot fill the server's memory.
void AddScalarSums(const ScalarSums& more, ScalarSums& sums);
bool HaveSameBits(const ScalarSums& a, const ScalarSums& b);

}  // namespace muster
