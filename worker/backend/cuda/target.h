// The stream for kernels, and a limit on the size of their grids.
#pragma once

#include <driver_types.h>

namespace muster::cuda {

struct Target {
  cudaStream_t stream = nullptr;
  // This many blocks fill the GPU several times; they loop over any further work. Results do not
  // depend on it.
  int most_blocks = 1;
};

}  // namespace muster::cuda
