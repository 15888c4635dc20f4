// The gradient of the weights of a convolution over an image of few channels: a network's first
// layer. oneDNN's AVX2 kernels use vectors of input channels, which are mostly empty there. Here
// vectors run over the filters, and the window's row (width x channels, contiguous in a
// channels-last image) takes the place of the channels.
//
// Owner and thread: an op; made once, allocates nothing afterwards. The order of the additions only
// depends on the number of OpenMP threads.
#pragma once

#include <cstdint>
#include <vector>

#include "common/graph/graph.h"

namespace muster::cpu {

class FewChannelsGradient {
 public:
  // Whether this is faster than oneDNN: one group, few input channels, filters a multiple of 8, and
  // a processor without AVX-512 (where oneDNN's kernels are faster).
  static bool Fits(const Layer& layer);

  FewChannelsGradient(const Layer& layer, int64_t batch);

  // For all threads.
  size_t scratch_floats() const { return threads_ * thread_floats_; }

  // source: [batch, height, width, channels]; output_gradient: [batch, height, width, filters];
  // weights_gradient: [filters, kernel height, kernel width, channels]; bias_gradient: [filters],
  // or null. The gradients are written, not added.
  void Run(const float* source, const float* output_gradient, float* weights_gradient,
           float* bias_gradient, float* scratch) const;

 private:
  // The scratch of one thread: a padded image, the sums of one image, and the sums of all.
  struct Scratch {
    float *image, *image_sums, *sums;
  };
  Scratch ScratchOf(size_t thread, float* scratch) const;
  void PadImage(const float* source, float* image) const;
  void AddImage(const float* image, const float* output_gradient, float* sums) const;
  void AddBias(const float* output_gradient, float* sums) const;

  const int64_t batch_;
  const Shape in_, out_;
  const Conv2dSpec spec_;
  const int64_t row_floats_;   // of a padded image
  const int64_t row_taps_;     // floats of a window's row: kernel width x channels
  const size_t image_floats_;  // of a padded image
  const size_t sum_floats_;    // [kernel height][row_taps_][filters], then the bias [filters]
  const size_t threads_;
  const size_t thread_floats_;
};

}  // namespace muster::cpu
