#include "common/plan/scalar_sums.h"

#include <algorithm>
#include <bit>

namespace muster {

bool IsScalarName(std::string_view name) {
  constexpr size_t kMostBytes = 64;
  constexpr std::string_view kAllowed =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./-";
  return !name.empty() && name.size() <= kMostBytes &&
         name.find_first_not_of(kAllowed) == std::string_view::npos;
}

void AddScalarSums(const ScalarSums& more, ScalarSums& sums) {
  for (const auto& [name, scalar] : more) {
    if (sums.size() >= kMostScalars && !sums.contains(name)) continue;
    ScalarSum& sum = sums[name];
    sum.sum += scalar.sum;
    sum.samples += scalar.samples;
  }
}

bool HaveSameBits(const ScalarSums& a, const ScalarSums& b) {
  return std::ranges::equal(a, b, [](const auto& x, const auto& y) {
    return x.first == y.first && x.second.samples == y.second.samples &&
           std::bit_cast<uint64_t>(x.second.sum) == std::bit_cast<uint64_t>(y.second.sum);
  });
}

}  // namespace muster
