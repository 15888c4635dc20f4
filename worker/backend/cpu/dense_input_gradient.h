// dx = dy W of a dense layer. W, [units, inputs], is copied piece by piece into panels that stay in
// the cache, and read only once. For rows of a multiple of 2 KiB, which map to few cache sets:
// there oneDNN 2.6's matrix product reaches 34–68 of 103 GFLOP/s (Zen 3), this one 72–86. For other
// rows oneDNN reaches 78–97.
//
// Owner and thread: an op; made once, allocates nothing afterwards. The bits only depend on the
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

  // For all threads.
  size_t scratch_floats() const;

  // output_gradient: [batch, units]; weights: [units, inputs]; input_gradient: [batch, inputs],
  // written, and zeroed where `mask`, of the same shape, is not above zero (null: not zeroed).
  void Run(const float* output_gradient, const float* weights, const float* mask,
           float* input_gradient, float* scratch) const;

 private:
  void CopyGradient(const float* output_gradient, int64_t panel, const Panels& to) const;
  void CopyWeights(const float* weights, const Range& units, const Range& panels,
                   const Panels& to) const;
  void CopyResult(const ConstPanels& from, const Range& panels, const float* mask,
                  float* input_gradient) const;

  const int64_t batch_, inputs_, units_;
  const int64_t gradient_panel_, result_panel_;  // floats from a panel to the next
  const int threads_;
};

}  // namespace muster::cpu
