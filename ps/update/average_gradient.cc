#include "ps/update/average_gradient.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

namespace muster {
namespace {

double TreeSumOf(std::span<const double> values) {
  constexpr size_t kLeaf = 64;
  if (values.size() <= kLeaf) return std::accumulate(values.begin(), values.end(), 0.0);
  const size_t half = values.size() / 2;
  return TreeSumOf(values.first(half)) + TreeSumOf(values.subspan(half));
}

}  // namespace

bool AverageGradient(const ChunkAverage& average) {
  std::vector<float> scratch(average.gradient.tree->scratch_floats());
  const UpdateKernelTable& kernels = average.kernels;
  const Chunk& chunk = average.chunk;
  alignas(64) float unscaled[TreeSum::kBlock];
  uint32_t bad = 0;
  auto segment = SegmentAt(average.segments, chunk.begin);
  for (size_t at = chunk.begin; at < chunk.end;) {
    if (segment->end <= at) ++segment;
    const size_t count = std::min({TreeSum::kBlock, chunk.end - at, segment->end - at});
    const bool trained = segment->kind == Segment::Kind::kTrained;
    const float* sum = average.gradient.tree->Run(
        kernels, average.gradient.type, average.gradient.parts, at - chunk.begin, count, scratch);
    const float factor = average.unscale * (trained ? average.weigh : 1);
    if (sum != nullptr && factor != 1) {
      kernels.scale(sum, unscaled, count, factor);
      sum = unscaled;
    }
    float* averaged = average.averaged.data() + at;
    if (sum == nullptr) {
      std::memset(averaged, 0, count * sizeof(float));
    } else if (trained && average.clip_value > 0) {
      bad |= kernels.clip_values(sum, averaged, count, average.clip_value);
    } else {
      bad |= kernels.copy_finite(sum, averaged, count);
    }
    if (!average.line_squares.empty()) {
      double* squares = average.line_squares.data() + at / kLineFloats;
      if (trained) {
        kernels.line_squares(averaged, squares, count);
      } else {
        std::fill_n(squares, count / kLineFloats, 0.0);
      }
    }
    at += count;
  }
  return bad == 0;
}

double GradientNorm(std::span<const double> line_squares) {
  return std::sqrt(TreeSumOf(line_squares));
}

}  // namespace muster
