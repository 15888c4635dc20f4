// The gradient of the weights and the bias of a 3x3 convolution of stride 1, by the transposed form
// of Winograd's F(2x2, 3x3), which is F(3x3, 2x2).
//
// Works in blocks of tiles: the 4x4 squares of the input and the 2x2 squares of the output's
// gradient are transformed, and in each of the 16 positions the products of all tiles are added to
// a matrix of outputs x inputs. At the end these matrices are transformed to 3x3 windows. The order
// of additions depends only on the shape, not on the number of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/graph/graph.h"
#include "worker/backend/cpu/winograd_tiles.h"

namespace muster::cpu::winograd {

class WeightsGradient {
 public:
  // Takes the shapes and padding of the forward pass. The channels of both shapes are multiples of
  // 8.
  WeightsGradient(int64_t batch, const Shape& source, const Shape& output, int64_t top,
                  int64_t left);

  size_t scratch_floats() const;

  // source: [batch, height, width, inputs]; output_gradient: [batch, height, width, outputs];
  // weights_gradient: [outputs, 3, 3, inputs]; bias_gradient: [outputs], or null. The gradients are
  // written, not added.
  void Run(const float* source, const float* output_gradient, float* weights_gradient,
           float* bias_gradient, float* scratch) const;

 private:
  void TransformGradient(const float* gradient, const Range& block, const TransformPart& part,
                         float* to, float* bias_sums) const;
  void TransformSums(const float* sums, int64_t output, float* weights_gradient) const;

  const Shape source_, output_;
  const TileGrid grid_;
  const int64_t block_;  // tiles
  const TileMatrices source_tiles_, gradient_tiles_;
  const SourceTransform transform_;
  const int64_t sums_position_;  // floats from one position's sums to the next
  const std::vector<float> zeros_;
};

}  // namespace muster::cpu::winograd
