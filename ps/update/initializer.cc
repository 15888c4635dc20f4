#include "ps/update/initializer.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

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

// N(0, `variance` / fan_in)
void Normals(double variance, const Variable& variable, uint32_t index, uint64_t seed,
             std::span<float> values) {
  const double stddev = std::sqrt(variance / static_cast<double>(variable.fan_in));
  for (size_t i = 0; i < values.size(); ++i) {
    const RandomStream stream(seed, RandomPurpose::kInitialWeights, index, 0, i);
    const auto bits = stream.Block(0);
    values[i] = static_cast<float>(stddev * Normal(bits[0], bits[1]));
  }
}

void Dirac(const Variable& variable, uint32_t index, uint64_t seed, std::span<float> values) {
  const bool is_image = variable.shape.size() == 4;
  const int64_t height = is_image ? variable.shape[1] : 1, width = is_image ? variable.shape[2] : 1;
  const int64_t filters = variable.shape.front(), channels = variable.shape.back();
  const int64_t group_filters = variable.fan_out / (height * width);
  const auto count = static_cast<size_t>(height * width * channels);  // of a filter
  // The variance of PyTorch's default. With He's, six times as large, these filters would learn six
  // times more slowly, if a batch norm follows.
  Normals(1.0 / 3, variable, index, seed, values);
  for (int64_t filter = 0; filter < filters; ++filter) {
    const int64_t channel = filter % group_filters;
    const bool copies = channel < channels;
    if (copies || !variable.initializer.draw_others) {
      std::ranges::fill(values.subspan(static_cast<size_t>(filter) * count, count), 0.0f);
    }
    if (!copies) continue;
    const int64_t centre = (filter * height + height / 2) * width + width / 2;
    values[static_cast<size_t>(centre * channels + channel)] = 1;
  }
}

// Eight sums of every eighth product, so that the loop vectorizes with fixed bits.
double Dot(const double* a, const double* b, size_t count) {
  constexpr size_t kSums = 8;
  double sums[kSums] = {};
  size_t i = 0;
  for (; i + kSums <= count; i += kSums) {
    for (size_t j = 0; j < kSums; ++j) sums[j] += a[i + j] * b[i + j];
  }
  for (; i < count; ++i) sums[i % kSums] += a[i] * b[i];
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

// The Gram-Schmidt process on normal numbers (Mezzadri 2007). It gives the Q of the QR
// decomposition whose R has a positive diagonal, the matrix of torch.nn.init.orthogonal_.
void Orthogonal(const Variable& variable, uint32_t index, uint64_t seed, std::span<float> values) {
  const auto rows = static_cast<size_t>(variable.shape.front());
  const size_t columns = values.size() / rows;
  // The vectors are the rows or, if there are more rows than columns, the columns.
  const size_t vectors = std::min(rows, columns), length = std::max(rows, columns);
  const auto place = [&](size_t vector, size_t i) {
    return rows <= columns ? vector * columns + i : i * columns + vector;
  };
  std::vector<double> matrix(values.size());
  for (size_t v = 0; v < vectors; ++v) {
    double* const own = &matrix[v * length];
    for (size_t i = 0; i < length; ++i) {
      const RandomStream stream(seed, RandomPurpose::kInitialWeights, index, 0, place(v, i));
      const auto bits = stream.Block(0);
      own[i] = Normal(bits[0], bits[1]);
    }
    for (size_t other = 0; other < v; ++other) {
      const double* const before = &matrix[other * length];
      const double share = Dot(before, own, length);
      for (size_t i = 0; i < length; ++i) own[i] -= share * before[i];
    }
    // The limit is for a single number, which can be 0.
    const double norm = std::max(std::sqrt(Dot(own, own, length)), 1e-30);
    for (size_t i = 0; i < length; ++i) own[i] /= norm;
    for (size_t i = 0; i < length; ++i) {
      values[place(v, i)] = static_cast<float>(variable.initializer.gain * own[i]);
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
    case Initializer::Kind::kHe:
      return Normals(2, variable, index, seed, values);
    case Initializer::Kind::kXavier: {
      const double limit = std::sqrt(6.0 / static_cast<double>(variable.fan_in + variable.fan_out));
      for (size_t i = 0; i < values.size(); ++i) {
        values[i] = static_cast<float>(limit * (2.0 * ToUniform(stream(i)[0]) - 1));
      }
      return;
    }
    case Initializer::Kind::kDirac:
      return Dirac(variable, index, seed, values);
    case Initializer::Kind::kOrthogonal:
      return Orthogonal(variable, index, seed, values);
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
