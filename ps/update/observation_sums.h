// Computes norms and histograms of a step's gradient and new weights while they are in the L1
// cache. Does not change any bits.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <vector>

#include "common/graph/variable_layout.h"
#include "ps/tensorboard/observation.h"
#include "ps/update/update_kernels.h"

namespace muster {

// Observes one chunk, on the thread that updates it.
class ChunkObserver {
 public:
  ChunkObserver(const VariableLayout& layout, bool histograms)
      : layout_(&layout), histograms_(histograms) {}

  // Observes floats [at, at + count) of the buffer, all from trained variables. The gradient is
  // `left`, or left + right. `count` is at most kMostFloats and a multiple of kLineFloats.
  static constexpr size_t kMostFloats = 1024;
  void See(const UpdateKernelTable& kernels, size_t at, size_t count, const float* left,
           const float* right, const float* next_weights);

 private:
  friend Observation SumUp(std::span<const ChunkObserver>, double);
  void Count(size_t at, std::span<const float> gradient, std::span<const float> weights);

  const VariableLayout* layout_;
  bool histograms_;
  double gradient_squares_ = 0, weight_squares_ = 0;
  struct Histograms {
    ValueHistogram gradient, weights;
  };
  std::map<size_t, Histograms> variables_;  // by variable index
};

// Adds up all chunks. `gradient_scale`: the factor that clip_norm applied to the gradient.
Observation SumUp(std::span<const ChunkObserver> chunks, double gradient_scale);

}  // namespace muster
