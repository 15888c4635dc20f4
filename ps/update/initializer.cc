#include "ps/update/initializer.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "common/base/error.h"
#include "common/base/random.h"

namespace muster {
namespace {

// One standard normal number from 64 bits (Box and Muller 1958); never computes log(0).
double Normal(uint32_t a, uint32_t b) {
  const double u = (static_cast<double>(a) + 1) * 0x1p-32;  // (0, 1]
  const double v = static_cast<double>(b) * 0x1p-32;        // [0, 1)
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
}

// Element i has its own stream, so that redrawing does not affect other elements.
double TruncatedNormal(uint64_t seed, uint32_t variable, uint64_t element) {
  const RandomStream stream(seed, RandomPurpose::kInitialWeights, variable, 0, element);
  for (uint32_t attempt = 0;; ++attempt) {
    const auto bits = stream.Block(attempt);
    for (const double x : {Normal(bits[0], bits[1]), Normal(bits[2], bits[3])}) {
      if (std::abs(x) <= 2) return x;
    }
  }
}

void Initialize(const Variable& variable, uint32_t index, uint64_t seed, std::span<float> values) {
  const Initializer& how = variable.initializer;
  const auto stream = [&](uint64_t element) {
    return RandomStream(seed, RandomPurpose::kInitialWeights, index, 0, element).Block(0);
  };
  switch (how.kind) {
    case Initializer::Kind::kConstant:
      std::fill(values.begin(), values.end(), how.value);
      return;
    case Initializer::Kind::kTruncatedNormal:
      for (size_t i = 0; i < values.size(); ++i) {
        values[i] = static_cast<float>(how.stddev * TruncatedNormal(seed, index, i));
      }
      return;
    case Initializer::Kind::kHe: {
      const double stddev = std::sqrt(2.0 / static_cast<double>(variable.fan_in));
      for (size_t i = 0; i < values.size(); ++i) {
        const auto bits = stream(i);
        values[i] = static_cast<float>(stddev * Normal(bits[0], bits[1]));
      }
      return;
    }
    case Initializer::Kind::kXavier: {
      const double limit = std::sqrt(6.0 / static_cast<double>(variable.fan_in + variable.fan_out));
      for (size_t i = 0; i < values.size(); ++i) {
        values[i] = static_cast<float>(limit * (2.0 * ToUniform(stream(i)[0]) - 1));
      }
      return;
    }
  }
  MUSTER_CHECK(false);
}

}  // namespace

void InitializeWeights(const VariableLayout& layout, uint64_t seed, std::span<float> weights) {
  MUSTER_CHECK(weights.size() == layout.arena_floats());
  std::fill(weights.begin(), weights.end(), 0.0f);
  for (size_t i = 0; i < layout.variables().size(); ++i) {
    const Variable& variable = layout.variables()[i];
    Initialize(variable, static_cast<uint32_t>(i), seed,
               weights.subspan(variable.offset, variable.count));
  }
}

}  // namespace muster
