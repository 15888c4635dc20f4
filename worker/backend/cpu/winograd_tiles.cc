#include "worker/backend/cpu/winograd_tiles.h"

namespace muster::cpu::winograd {

SourceTransform::SourceTransform(const Shape& source, int64_t top, int64_t left,
                                 const TileMatrices& matrices)
    : source_(source),
      top_(top),
      left_(left),
      matrices_(matrices),
      zeros_(static_cast<size_t>(source.channels)) {}

void SourceTransform::Run(const float* source, const TileGrid& grid, int64_t first,
                          const TransformPart& part, float* matrices) const {
  const int64_t position_stride = matrices_.position();
  for (int64_t t = part.tiles.begin; t < part.tiles.end; ++t) {
    const Tile tile = grid.At(first + t);
    const auto square = SquareAt<4>(source, source_, tile.image, tile.row - top_,
                                    tile.column - left_, zeros_.data());
    for (int64_t panel = part.panels.begin; panel < part.panels.end; ++panel) {
      float* const to = matrices + panel * matrices_.panel() + t * kLanes;
      TransformInput(
          [&](int i, int j) { return LoadFloats(square.pixels[i][j] + panel * kLanes); },
          [&](int position, FloatVec vec) { Store(to + position * position_stride, vec); });
    }
  }
}

}  // namespace muster::cpu::winograd
