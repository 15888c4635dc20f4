// The stream for kernels, and a limit on the size of their grids.
#pragma once

#include <driver_types.h>

#include <algorithm>

namespace muster::cuda {

// Four times as many 256-thread blocks as fit on the GPU. Blocks with many registers do not fit so
// often; with few blocks the last ones would then leave much of the GPU idle.
inline int MostBlocks(const cudaDeviceProp& properties) {
  return 4 * std::max(1, properties.maxThreadsPerMultiProcessor / 256) *
         properties.multiProcessorCount;
}

struct Target {
  cudaStream_t stream = nullptr;
  // This many blocks fill the GPU several times; they loop over any further work. Results do not
  // depend on it.
  int most_blocks = 1;
};

}  // namespace muster::cuda
