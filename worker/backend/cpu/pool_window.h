// The inputs of each output of a pooling layer, and the outputs of each input, along one axis.
// Computed once, because the kernels need them for every pixel.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/plan/slices.h"

namespace muster::cpu {

class PoolAxis {
 public:
  PoolAxis() = default;
  PoolAxis(int64_t in_size, int64_t out_size, int64_t kernel_size, int64_t stride,
           int64_t pad_before)
      : in(in_size), out(out_size), kernel(kernel_size), stride_(stride), pad_before_(pad_before) {
    for (int64_t o = 0; o < out; ++o) {
      inputs_.push_back({std::max<int64_t>(0, Start(o)), std::min(in, Start(o) + kernel)});
    }
    for (int64_t i = 0; i < in; ++i) {
      const int64_t last = (i + pad_before) / stride;  // starts at or before i
      const int64_t before = i + pad_before - kernel;  // a window that starts here ends before i
      const int64_t first = before < 0 ? 0 : before / stride + 1;
      outputs_.push_back({std::min(first, out), std::min(out, last + 1)});
    }
  }

  // The inputs of output `o`, excluding padding; input i has index i - Start(o) in the window.
  const Range& Inputs(int64_t o) const { return inputs_[static_cast<size_t>(o)]; }
  // The outputs of input `i`.
  const Range& Outputs(int64_t i) const { return outputs_[static_cast<size_t>(i)]; }
  int64_t Start(int64_t o) const { return o * stride_ - pad_before_; }

  int64_t in = 0, out = 0, kernel = 0;

 private:
  int64_t stride_ = 1, pad_before_ = 0;
  std::vector<Range> inputs_, outputs_;
};

}  // namespace muster::cpu
