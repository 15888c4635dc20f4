// The weights of a 3x3 convolution, transformed for Winograd's F(2x2, 3x3). They are computed once
// for each version, because the slices of a step and the batches of an evaluation share them. They
// take 16/9 of the memory of the weights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "common/base/memory.h"
#include "worker/backend/cpu/panel_product.h"

namespace muster::cpu::winograd {

class TransformedWeights {
 public:
  enum class Use {
    kForward,       // 16 matrices of inputs x outputs
    kBackwardData,  // 16 matrices of outputs x inputs, with the filters rotated by 180 degrees
  };
  // Both counts must be multiples of 8. Allocate must precede the first Update.
  TransformedWeights(int64_t inputs, int64_t outputs, Use use);

  size_t bytes() const;
  void Allocate();  // only the first call allocates

  // weights: [outputs, 3, 3, inputs]. Does nothing if this version has already been transformed.
  void Update(const float* weights, int64_t version);

  // The operand for MultiplyStrip.
  ConstPanels At(int64_t position) const;

 private:
  void TransformForward(const float* weights, int64_t output);
  void TransformBackwardData(const float* weights, int64_t output);

  const int64_t inputs_, outputs_;
  const Use use_;
  const int64_t position_;  // floats from one position to the next
  Arena data_;
  std::optional<int64_t> version_;
};

}  // namespace muster::cpu::winograd
