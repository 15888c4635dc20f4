// Computes the weight gradient of a convolution over an image with few channels, as in a network's
// first layer. oneDNN's AVX2 kernels use vectors of input channels, which would be mostly empty.
// Here the vectors run over the filters, and the window's row (width x channels, contiguous in a
// channels-last image) takes the place of the channels.
//
// Owned and used by one op. Allocates nothing after construction. The order of the additions
// depends only on the number of OpenMP threads.
#pragma once

#include <cstdint>
#include <vector>

#include "common/graph/graph.h"

namespace muster::cpu {

class FewChannelsGradient {
 public:
  // Whether this is faster than oneDNN. That is the case for one group, few input channels and a
  // multiple of 8 filters, on a processor without AVX-512 (with which oneDNN's kernels are faster).
  static bool Fits(const Layer& layer);

  FewChannelsGradient(const Layer& layer, int64_t batch);

  // The scratch of all threads together.
  size_t scratch_floats() const { return threads_ * thread_floats_; }

  // source: [batch, height, width, channels]; output_gradient: [batch, height, width, filters];
  // weights_gradient: [filters, kernel height, kernel width, channels]; bias_gradient: [filters],
  // or null. The gradients are written, not added.
  void Run(const float* source, const float* output_gradient, float* weights_gradient,
           float* bias_gradient, float* scratch) const;

 private:
  // The scratch of one thread: a padded image, the sums of one image, and the sums of all images.
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
