#include "worker/backend/cpu/winograd_convolution.h"

#include <algorithm>

#include "worker/backend/cpu/kernels.h"
#include "worker/backend/cpu/vec.h"

namespace muster::cpu::winograd {
namespace {

// The number of tiles in a block: few enough for both sets of transformed values to stay in the
// outer caches, and enough to make reading the weights, once for each block, cheap.
int64_t BlockTiles(int64_t tiles, int64_t channels) {
  constexpr int64_t kBlockFloats = 1 << 20;
  const int64_t fitting = kBlockFloats / (kPositions * channels) / 4 * 4;
  return std::min(tiles, std::clamp<int64_t>(fitting, 128, 512));
}

}  // namespace

Convolution::Convolution(int64_t batch, const Shape& source, const Shape& result, int64_t top,
                         int64_t left)
    : source_(source),
      result_(result),
      grid_(batch, result),
      block_(BlockTiles(grid_.count(), source.channels + result.channels)),
      source_tiles_(block_, source.channels),
      result_tiles_(block_, result.channels),
      transform_(source, top, left, source_tiles_) {}

void Convolution::Run(const float* source, const TransformedWeights& weights, const Finish& finish,
                      float* result, float* scratch) const {
  float* const source_tiles = scratch;
  float* const result_tiles = scratch + source_tiles_.floats();
  const int64_t result_panels = result_.channels / kLanes, strips = StripCount(result_panels);
  for (int64_t first = 0; first < grid_.count(); first += block_) {
    const Range block = {first, std::min(first + block_, grid_.count())};
    const TransformParts source_parts(block.size(), source_.channels / kLanes);
    ParallelFor(source_parts.count(), [&](int64_t i) {
      transform_.Run(source, grid_, first, source_parts.At(i), source_tiles);
    });
    ParallelFor(kPositions * strips, [&](int64_t i) {
      const int64_t position = i / strips;
      MultiplyStrip(source_tiles_.At(source_tiles, position), weights.At(position),
                    result_tiles_.At(result_tiles, position), block.size(), source_.channels,
                    Strip(result_panels, i % strips), true);
    });
    const TransformParts result_parts(block.size(), result_panels);
    ParallelFor(result_parts.count(), [&](int64_t i) {
      TransformResult(result_tiles, block, result_parts.At(i), finish, result);
    });
  }
}

void Convolution::TransformResult(const float* from, const Range& block, const TransformPart& part,
                                  const Finish& finish, float* result) const {
  const int64_t stride = result_tiles_.position();
  for (int64_t t = part.tiles.begin; t < part.tiles.end; ++t) {
    const Tile tile = grid_.At(block.begin + t);
    const auto square =
        SquareAt<2, float>(result, result_, tile.image, tile.row, tile.column, nullptr);
    for (int64_t panel = part.panels.begin; panel < part.panels.end; ++panel) {
      const float* const at = from + panel * result_tiles_.panel() + t * kLanes;
      const FloatVec bias =
          finish.bias == nullptr ? FloatVec{} : LoadFloats(finish.bias + panel * kLanes);
      TransformOutput([&](int i, int j) { return LoadFloats(at + (4 * i + j) * stride); },
                      [&](int place, FloatVec vec) {
                        float* const pixel = square.pixels[place / 2][place % 2];
                        if (pixel == nullptr) return;
                        float* const to = pixel + panel * kLanes;
                        vec += bias;
                        if (finish.relu) vec = vec < 0 ? FloatVec{} : vec;
                        if (finish.mask != nullptr) {
                          vec = LoadFloats(finish.mask + (to - result)) > 0 ? vec : FloatVec{};
                        }
                        Store(to, vec);
                      });
    }
  }
}

}  // namespace muster::cpu::winograd
