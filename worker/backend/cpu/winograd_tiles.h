// The tiles of Winograd's F(2x2, 3x3) and the layout of the transformed tiles.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/graph/graph.h"
#include "worker/backend/cpu/panel_product.h"
#include "worker/backend/cpu/vec.h"
#include "worker/backend/cpu/winograd_transforms.h"

namespace muster::cpu::winograd {

// The upper left pixel of a tile of 2x2 pixels.
struct Tile {
  int64_t image, row, column;
};

// The 2x2 tiles that cover a batch of images; the last ones may extend beyond the right and lower
// edges.
class TileGrid {
 public:
  TileGrid(int64_t batch, const Shape& image)
      : columns_((image.width + 1) / 2),
        per_image_((image.height + 1) / 2 * columns_),
        count_(batch * per_image_) {}
  int64_t count() const { return count_; }
  Tile At(int64_t index) const {
    const int64_t inside = index % per_image_;
    return {index / per_image_, inside / columns_ * 2, inside % columns_ * 2};
  }

 private:
  int64_t columns_, per_image_, count_;
};

// The addresses of a square of pixels of channels-last images.
template <int kSize, typename Float>
struct Square {
  Float* pixels[kSize][kSize];
};

// The square whose upper left pixel is (row, column), which may be negative. Pixels outside the
// image have the address `outside`.
template <int kSize, typename Float>
inline Square<kSize, Float> SquareAt(Float* images, const Shape& shape, int64_t image, int64_t row,
                                     int64_t column, Float* outside) {
  Square<kSize, Float> square;
  Float* const first = images + image * shape.elements();
  for (int i = 0; i < kSize; ++i) {
    for (int j = 0; j < kSize; ++j) {
      const int64_t r = row + i, c = column + j;
      const bool inside = r >= 0 && r < shape.height && c >= 0 && c < shape.width;
      square.pixels[i][j] = inside ? first + (r * shape.width + c) * shape.channels : outside;
    }
  }
  return square;
}

// 16 matrices of tiles x channels, one for each position, each in panels. The distances between
// them are odd numbers of cache lines: the transforms write to all matrices in turn, and powers of
// two would map them to the same cache set.
class TileMatrices {
 public:
  TileMatrices(int64_t tiles, int64_t channels)
      : panel_(OddLines(tiles * kLanes)), position_(OddLines(channels / kLanes * panel_)) {}
  size_t floats() const { return static_cast<size_t>(kPositions * position_); }
  int64_t position() const { return position_; }
  int64_t panel() const { return panel_; }
  Panels At(float* data, int64_t position) const { return {data + position * position_, panel_}; }

 private:
  static int64_t OddLines(int64_t floats) { return ((floats + 15) / 16 | 1) * 16; }

  int64_t panel_, position_;
};

// A thread's unit of transformation: a few tiles and channels, whose 16 streams of results stay in
// the L1 cache until their lines are full.
struct TransformPart {
  Range tiles, panels;
};
class TransformParts {
 public:
  TransformParts(int64_t tiles, int64_t panels)
      : tiles_(tiles), panels_(panels), strips_((panels + kPanels - 1) / kPanels) {}
  int64_t count() const { return (tiles_ + kTiles - 1) / kTiles * strips_; }
  TransformPart At(int64_t index) const {
    const int64_t tile = index / strips_ * kTiles, panel = index % strips_ * kPanels;
    return {{tile, std::min(tile + kTiles, tiles_)}, {panel, std::min(panel + kPanels, panels_)}};
  }

  static constexpr int64_t kTiles = 16, kPanels = 8;

 private:
  int64_t tiles_, panels_, strips_;
};

// Transforms 4x4 squares of channels-last images: the tiles' own 2x2 pixels and a border of one
// pixel.
class SourceTransform {
 public:
  // The square of a tile at (row, column) begins at (row - top, column - left).
  SourceTransform(const Shape& source, int64_t top, int64_t left, const TileMatrices& matrices);
  // `first`: the tile of `grid` that is tile 0 of the matrices and of `part`.
  void Run(const float* source, const TileGrid& grid, int64_t first, const TransformPart& part,
           float* matrices) const;

 private:
  const Shape source_;
  const int64_t top_, left_;
  const TileMatrices matrices_;
  const std::vector<float> zeros_;
};

}  // namespace muster::cpu::winograd
