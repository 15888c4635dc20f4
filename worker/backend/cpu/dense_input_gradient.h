// Computes dx = dy W of a dense layer. W, [units, inputs], is read only once: it is copied piece by
// piece into panels that stay in the cache. This helps if the size of W's rows is a multiple of 2
// KiB, because these map to few cache sets. For them, oneDNN 2.6's matrix product reaches 34–68 of
// 103 GFLOP/s (Zen 3), and this one 72–86. For other rows oneDNN reaches 78–97.
//
// Owned and used by one op. Allocates nothing after construction. The bits depend only on the
// shape, not on the number of threads.
#pragma once

#include <cstddef>
#include <cstdint>

#include "worker/backend/cpu/panel_product.h"

namespace muster::cpu {

class DenseInputGradient {
 public:
  // Whether this is faster than oneDNN.
  static bool Fits(int64_t batch, int64_t inputs, int64_t units);

  DenseInputGradient(int64_t batch, int64_t inputs, int64_t units);

  // The scratch of all threads together.
  size_t scratch_floats() const;

  // output_gradient: [batch, units]; weights: [units, inputs]; input_gradient: [batch, inputs].
  // Overwrites input_gradient, with zeros where `mask`, of the same shape, is not above zero.
  // `mask` may be null.
  void Run(const float* output_gradient, const float* weights, const float* mask,
           float* input_gradient, float* scratch) const;

 private:
  void CopyGradient(const float* output_gradient, int64_t panel, const Panels& to) const;
  void CopyWeights(const float* weights, const Range& units, const Range& panels,
                   const Panels& to) const;
  void CopyResult(const ConstPanels& from, const Range& panels, const float* mask,
                  float* input_gradient) const;

  const int64_t batch_, inputs_, units_;
  const int64_t gradient_panel_, result_panel_;  // floats from one panel to the next
  const int threads_;
};

}  // namespace muster::cpu
