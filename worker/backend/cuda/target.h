// The stream for kernels and the limit of their grids.
#pragma once

#include <driver_types.h>

namespace muster::cuda {

struct Target {
  cudaStream_t stream = nullptr;
  // Enough blocks to fill the GPU; more work is done in loops. No result depends on it.
  int most_blocks = 1;
};

}  // namespace muster::cuda
