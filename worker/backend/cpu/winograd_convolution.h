// A 3x3 convolution of stride 1 by Winograd's F(2x2, 3x3): forward, and backward with respect to
// the input, which is the same operation with rotated filters.
//
// Works in blocks of tiles, so that transformed data stays in the cache: all channels of the
// block's 4x4 squares are transformed, multiplied with the weights in each of the 16 positions, and
// transformed back to 2x2 squares of the result. Results depend neither on the number of threads
// nor on the size of the blocks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/graph/graph.h"
#include "worker/backend/cpu/winograd_tiles.h"
#include "worker/backend/cpu/winograd_weights.h"

namespace muster::cpu::winograd {

class Convolution {
 public:
  // result(y, x) = Σ source(y + i - top, x + j - left) * filter(i, j), where pixels outside the
  // source are zero. Channels of both are multiples of 8.
  Convolution(int64_t batch, const Shape& source, const Shape& result, int64_t top, int64_t left);

  size_t scratch_floats() const { return source_tiles_.floats() + result_tiles_.floats(); }

  // What to apply to the result in the same pass, in this order: add the bias, apply relu (NaN
  // stays NaN), and zero the values where `mask`, of the result's shape, is not above zero. Null
  // and false have no effect.
  struct Finish {
    const float* bias = nullptr;
    bool relu = false;
    const float* mask = nullptr;
  };
  // source and result: [batch, height, width, channels]. Overwrites result.
  void Run(const float* source, const TransformedWeights& weights, const Finish& finish,
           float* result, float* scratch) const;

 private:
  void TransformResult(const float* from, const Range& block, const TransformPart& part,
                       const Finish& finish, float* result) const;

  const Shape source_, result_;
  const TileGrid grid_;
  const int64_t block_;  // tiles
  const TileMatrices source_tiles_, result_tiles_;
  const SourceTransform transform_;
};

}  // namespace muster::cpu::winograd
