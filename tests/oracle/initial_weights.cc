// Initializers, as described in proto/config.proto (Initializer).
#include <cmath>
#include <numbers>

#include "common/base/random.h"
#include "tests/oracle/oracle.h"

namespace muster::oracle {
namespace {

// The Box-Muller transform (1958) of 64 random bits.
double Normal(uint32_t a, uint32_t b) {
  const double u = (a + 1.0) / 4294967296.0, v = b / 4294967296.0;
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
}

// Draws until the value is at most two standard deviations from the mean.
double TruncatedNormal(const RandomStream& random) {
  for (uint32_t block = 0;; ++block) {
    const auto bits = random.Block(block);
    if (const double x = Normal(bits[0], bits[1]); std::abs(x) <= 2) return x;
    if (const double x = Normal(bits[2], bits[3]); std::abs(x) <= 2) return x;
  }
}

double Draw(const Variable& variable, const RandomStream& random) {
  const auto bits = random.Block(0);
  const auto fan_in = static_cast<double>(variable.fan_in),
             fan_out = static_cast<double>(variable.fan_out);
  switch (variable.initializer.kind) {
    case Initializer::Kind::kConstant:
      return variable.initializer.value;
    case Initializer::Kind::kTruncatedNormal:
      return variable.initializer.stddev * TruncatedNormal(random);
    case Initializer::Kind::kHe:
      return std::sqrt(2 / fan_in) * Normal(bits[0], bits[1]);
    case Initializer::Kind::kXavier:
      return std::sqrt(6 / (fan_in + fan_out)) * (2.0 * ToUniform(bits[0]) - 1);
  }
  return 0;
}

}  // namespace

std::vector<float> InitialWeights(const VariableLayout& layout, uint64_t seed) {
  std::vector<float> weights(layout.arena_floats());
  uint32_t place = 0;
  for (const Variable& variable : layout.variables()) {
    for (size_t i = 0; i < variable.count; ++i) {
      const RandomStream random(seed, RandomPurpose::kInitialWeights, place, 0, i);
      weights[variable.offset + i] = static_cast<float>(Draw(variable, random));
    }
    ++place;
  }
  return weights;
}

}  // namespace muster::oracle
