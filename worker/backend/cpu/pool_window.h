// Which inputs an output of a pooling layer sees, and which outputs see an input, along one axis.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/slices.h"

namespace muster::cpu {

struct PoolAxis {
  int64_t in, out, kernel, stride, pad_before;

  // Inputs that output `o` sees, padding left out; input i is place i - Start(o) of the window.
  Range Inputs(int64_t o) const {
    return {std::max<int64_t>(0, Start(o)), std::min(in, Start(o) + kernel)};
  }
  // Outputs that see input `i`.
  Range Outputs(int64_t i) const {
    const int64_t last = (i + pad_before) / stride;  // starts at or before i
    const int64_t before = i + pad_before - kernel;  // a window that starts here ends before i
    const int64_t first = before < 0 ? 0 : before / stride + 1;
    return {std::min(first, out), std::min(out, last + 1)};
  }
  int64_t Start(int64_t o) const { return o * stride - pad_before; }
};

}  // namespace muster::cpu
