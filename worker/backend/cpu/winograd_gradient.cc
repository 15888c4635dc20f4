#include "worker/backend/cpu/winograd_gradient.h"

#include <algorithm>

#include "worker/backend/cpu/kernels.h"
#include "worker/backend/cpu/vec.h"

namespace muster::cpu::winograd {
namespace {

// The number of tiles in a block: more than in forward, because each block reads and writes all
// sums.
int64_t BlockTiles(int64_t tiles, int64_t channels) {
  constexpr int64_t kBlockFloats = 1 << 20;
  const int64_t fitting = kBlockFloats / (kPositions * channels) / 4 * 4;
  return std::min(tiles, std::clamp<int64_t>(fitting, 256, 512));
}

}  // namespace

WeightsGradient::WeightsGradient(int64_t batch, const Shape& source, const Shape& output,
                                 int64_t top, int64_t left)
    : source_(source),
      output_(output),
      grid_(batch, output),
      block_(BlockTiles(grid_.count(), source.channels + output.channels)),
      source_tiles_(block_, source.channels),
      gradient_tiles_(block_, output.channels),
      transform_(source, top, left, source_tiles_),
      sums_position_(source.channels * output.channels + 16),  // not a power of two
      zeros_(static_cast<size_t>(output.channels)) {}

size_t WeightsGradient::scratch_floats() const {
  const int64_t bias_parts = (block_ + TransformParts::kTiles - 1) / TransformParts::kTiles;
  return source_tiles_.floats() + gradient_tiles_.floats() +
         static_cast<size_t>(kPositions * sums_position_ + bias_parts * output_.channels);
}

void WeightsGradient::Run(const float* source, const float* output_gradient,
                          float* weights_gradient, float* bias_gradient, float* scratch) const {
  float* const source_tiles = scratch;
  float* const gradient_tiles = source_tiles + source_tiles_.floats();
  float* const sums = gradient_tiles + gradient_tiles_.floats();
  float* const bias_sums = sums + kPositions * sums_position_;
  const int64_t inputs = source_.channels, outputs = output_.channels;
  const int64_t strips = StripCount(inputs / kLanes);
  if (bias_gradient != nullptr) std::fill_n(bias_gradient, outputs, 0.0f);
  for (int64_t first = 0; first < grid_.count(); first += block_) {
    const Range block = {first, std::min(first + block_, grid_.count())};
    const TransformParts source_parts(block.size(), inputs / kLanes);
    const TransformParts gradient_parts(block.size(), outputs / kLanes);
    ParallelFor(source_parts.count() + gradient_parts.count(), [&](int64_t i) {
      if (i < source_parts.count()) {
        transform_.Run(source, grid_, first, source_parts.At(i), source_tiles);
      } else {
        TransformGradient(output_gradient, block, gradient_parts.At(i - source_parts.count()),
                          gradient_tiles, bias_sums);
      }
    });
    ParallelFor(kPositions * strips, [&](int64_t i) {
      const int64_t position = i / strips;
      AddOuterStrip(gradient_tiles_.At(gradient_tiles, position),
                    source_tiles_.At(source_tiles, position), sums + position * sums_position_,
                    inputs, block.size(), outputs, Strip(inputs / kLanes, i % strips), first == 0);
    });
    if (bias_gradient == nullptr) continue;
    for (int64_t t = 0; t < block.size(); t += TransformParts::kTiles) {
      const float* const part = bias_sums + t / TransformParts::kTiles * outputs;
#pragma omp simd
      for (int64_t k = 0; k < outputs; ++k) bias_gradient[k] += part[k];
    }
  }
  ParallelFor(outputs, [&](int64_t k) { TransformSums(sums, k, weights_gradient); });
}

void WeightsGradient::TransformGradient(const float* gradient, const Range& block,
                                        const TransformPart& part, float* to,
                                        float* bias_sums) const {
  const int64_t stride = gradient_tiles_.position();
  FloatVec sums[TransformParts::kPanels] = {};
  for (int64_t t = part.tiles.begin; t < part.tiles.end; ++t) {
    const Tile tile = grid_.At(block.begin + t);
    const auto square =
        SquareAt<2>(gradient, output_, tile.image, tile.row, tile.column, zeros_.data());
    for (int64_t panel = part.panels.begin; panel < part.panels.end; ++panel) {
      float* const at = to + panel * gradient_tiles_.panel() + t * kLanes;
      FloatVec pixels[2][2];
      for (int i = 0; i < 2; ++i) {
        for (int j = 0; j < 2; ++j) {
          pixels[i][j] = LoadFloats(square.pixels[i][j] + panel * kLanes);
        }
      }
      sums[panel - part.panels.begin] +=
          (pixels[0][0] + pixels[0][1]) + (pixels[1][0] + pixels[1][1]);
      TransformOutputGradient(
          [&](int i, int j) { return pixels[i][j]; },
          [&](int position, FloatVec vec) { Store(at + position * stride, vec); });
    }
  }
  float* const to_sums = bias_sums + part.tiles.begin / TransformParts::kTiles * output_.channels;
  for (int64_t panel = part.panels.begin; panel < part.panels.end; ++panel) {
    Store(to_sums + panel * kLanes, sums[panel - part.panels.begin]);
  }
}

void WeightsGradient::TransformSums(const float* sums, int64_t output,
                                    float* weights_gradient) const {
  const int64_t inputs = source_.channels;
  for (int64_t c = 0; c < inputs; c += kLanes) {
    const float* const from = sums + output * inputs + c;
    float* const to = weights_gradient + output * 9 * inputs + c;
    TransformWeightsGradient(
        [&](int i, int j) { return LoadFloats(from + (4 * i + j) * sums_position_); },
        [&](int tap, FloatVec vec) { Store(to + tap * inputs, vec); });
  }
}

}  // namespace muster::cpu::winograd
