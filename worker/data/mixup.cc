#include "worker/data/mixup.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "common/base/error.h"
#include "common/base/random.h"

namespace muster {
namespace {

// base^exponent for base in (0, 1]. Uses only *, / and √, which every processor rounds correctly,
// because the bits of pow depend on the version of libm.
double Power(double base, double exponent) {
  double result = 1, whole = std::floor(exponent), rest = exponent - whole;
  for (double square = base; whole > 0; square *= square) {
    if (std::fmod(whole, 2) == 1) result *= square;
    whole = std::floor(whole / 2);
  }
  for (double root = std::sqrt(base); rest > 0; root = std::sqrt(root)) {
    rest *= 2;
    if (rest < 1) continue;
    result *= root;
    rest -= 1;
  }
  return result;
}

// Returns a value above 0 and below 1.
double Uniform(uint32_t bits) { return (bits + 0.5) * 0x1p-32; }

}  // namespace

// Returns (1 + |2 b - 1|) / 2, where b is drawn from Beta(alpha, alpha), from a random point in a
// quarter of the unit circle (Devroye, "Random variate generation in one line of code", 1996, with
// Bailey's polar method). The square of the point's radius is uniform and independent of its angle.
float MixupShare(double alpha, uint64_t seed, int64_t step, int64_t slice) {
  const RandomStream stream(seed, RandomPurpose::kMixup, static_cast<uint32_t>(slice), /*epoch=*/0,
                            static_cast<uint64_t>(step));
  for (uint32_t i = 0;; ++i) {
    const std::array<uint32_t, 4> bits = stream.Block(i);
    const double x = Uniform(bits[0]), y = Uniform(bits[1]), square = x * x + y * y;
    if (square > 1) continue;
    const double power = Power(square, std::min(1 / alpha, 1e9)),
                 spread = (1 - power) * (x * x / square);
    return static_cast<float>(0.5 + 0.5 * std::sqrt(spread / (power + spread)));
  }
}

void MixImages(float share, int64_t count, int64_t elements, float* images) {
  MUSTER_CHECK(count > 0);
  float* const last = images + (count - 1) * elements;
  const std::vector<float> unmixed(last, last + elements);
  for (int64_t n = count - 1; n >= 0; --n) {
    float* const image = images + n * elements;
    const float* const before = n == 0 ? unmixed.data() : image - elements;
    for (int64_t i = 0; i < elements; ++i) image[i] = share * image[i] + (1 - share) * before[i];
  }
}

}  // namespace muster
