// Initializers, as described in proto/config.proto (Initializer).
#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

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

// Copies channel c to filter c of each group, at the centre of the kernel.
double Dirac(const Variable& variable, int64_t i) {
  const auto& shape = variable.shape;
  const bool dense = shape.size() == 2;
  const int64_t channels = shape.back(), height = dense ? 1 : shape[1],
                width = dense ? 1 : shape[2];
  const int64_t channel = i % channels, column = i / channels % width,
                row = i / channels / width % height, filter = i / channels / width / height;
  const int64_t group_filters = variable.fan_out / height / width;
  return channel == filter % group_filters && row == height / 2 && column == width / 2;
}

// Makes the rows, or the columns if there are fewer of them, orthonormal one after the other.
std::vector<double> Orthogonal(const Variable& variable, uint64_t seed, uint32_t place) {
  const auto rows = static_cast<size_t>(variable.shape[0]);
  const size_t columns = variable.count / rows;
  std::vector<std::vector<double>> vectors(std::min(rows, columns),
                                           std::vector<double>(std::max(rows, columns)));
  std::vector<double> result(variable.count);
  const auto number = [&](size_t v, size_t i) {
    return rows <= columns ? v * columns + i : i * columns + v;
  };
  const auto product = [](const std::vector<double>& a, const std::vector<double>& b) {
    double s[8] = {};
    for (size_t i = 0; i < a.size(); ++i) s[i % 8] += a[i] * b[i];
    return s[0] + s[1] + (s[2] + s[3]) + (s[4] + s[5] + (s[6] + s[7]));
  };
  for (size_t v = 0; v < vectors.size(); ++v) {
    std::vector<double>& own = vectors[v];
    for (size_t i = 0; i < own.size(); ++i) {
      const RandomStream random(seed, RandomPurpose::kInitialWeights, place, 0, number(v, i));
      own[i] = Normal(random.Block(0)[0], random.Block(0)[1]);
    }
    for (size_t before = 0; before < v; ++before) {
      const double share = product(vectors[before], own);
      for (size_t i = 0; i < own.size(); ++i) own[i] -= share * vectors[before][i];
    }
    const double norm = std::sqrt(product(own, own));
    for (size_t i = 0; i < own.size(); ++i) {
      own[i] /= norm;
      result[number(v, i)] = variable.initializer.gain * own[i];
    }
  }
  return result;
}

// Whether this element is of a filter with an input channel of its own.
bool Copies(const Variable& variable, int64_t i) {
  const int64_t size = static_cast<int64_t>(variable.count) / variable.shape[0];
  const int64_t area = size / variable.shape.back();
  return i / size % (variable.fan_out / area) < variable.shape.back();
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
    case Initializer::Kind::kDirac:
    case Initializer::Kind::kOrthogonal:
      break;  // not drawn one by one
  }
  return 0;
}

}  // namespace

std::vector<float> InitialWeights(const VariableLayout& layout, uint64_t seed) {
  std::vector<float> weights(layout.arena_floats());
  uint32_t place = 0;
  for (const Variable& variable : layout.variables()) {
    const auto kind = variable.initializer.kind;
    std::vector<double> orthogonal;
    if (kind == Initializer::Kind::kOrthogonal) orthogonal = Orthogonal(variable, seed, place);
    for (size_t i = 0; i < variable.count; ++i) {
      const RandomStream random(seed, RandomPurpose::kInitialWeights, place, 0, i);
      if (variable.initializer.draw_others && !Copies(variable, static_cast<int64_t>(i))) {
        const auto bits = random.Block(0);
        const double stddev = std::sqrt(1.0 / 3 / static_cast<double>(variable.fan_in));
        weights[variable.offset + i] = static_cast<float>(stddev * Normal(bits[0], bits[1]));
        continue;
      }
      weights[variable.offset + i] = static_cast<float>(
          kind == Initializer::Kind::kOrthogonal ? orthogonal[i]
          : kind == Initializer::Kind::kDirac    ? Dirac(variable, static_cast<int64_t>(i))
                                                 : Draw(variable, random));
    }
    ++place;
  }
  return weights;
}

}  // namespace muster::oracle
