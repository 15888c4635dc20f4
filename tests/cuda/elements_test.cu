// Divisor: division with a multiplication.
#include <gtest/gtest.h>

#include <vector>

#include "worker/backend/cuda/elements.h"

namespace muster::cuda {
namespace {

constexpr uint32_t kLargest = (uint32_t{1} << 31) - 1;

TEST(Divisor, DividesLikeADivision) {
  std::vector<uint32_t> divisors;
  for (uint32_t of = 1; of < 700; ++of) divisors.push_back(of);
  for (int bit = 10; bit < 31; ++bit) {
    for (const int step : {-1, 0, 1}) divisors.push_back((uint32_t{1} << bit) + step);
  }
  divisors.insert(divisors.end(), {641, 6700417, kLargest - 1, kLargest});
  for (const uint32_t of : divisors) {
    const Divisor divisor(static_cast<int>(of));
    std::vector<uint32_t> numbers{0, 1, of - 1, of, kLargest - 1, kLargest};
    for (uint64_t multiple = of; multiple <= kLargest; multiple = multiple * 3 + of) {
      for (const int step : {-1, 0, 1}) {
        if (multiple + step <= kLargest) numbers.push_back(static_cast<uint32_t>(multiple) + step);
      }
    }
    for (const uint32_t n : numbers) {
      const Divisor::Parts parts = divisor.Split(n);
      ASSERT_EQ(parts.quotient, n / of) << n << " / " << of;
      ASSERT_EQ(parts.rest, n % of) << n << " / " << of;
      ASSERT_EQ(divisor.Quotient(n), n / of);
    }
  }
}

}  // namespace
}  // namespace muster::cuda
