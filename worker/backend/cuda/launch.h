// Every kernel of this backend is started by Launch(kernel, grid, block, stream, arguments...).
// Included only by .cu files. With MUSTER_SOFTWARE_GPU the same template runs the kernel on the
// host (tests/cuda).
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "worker/backend/cuda/check.h"
#include "worker/backend/cuda/target.h"

#ifdef MUSTER_SOFTWARE_GPU
#include "software_gpu/launch.h"
#else
namespace muster::cuda {

template <typename... Parameters, typename... Arguments>
void Launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, cudaStream_t stream,
            Arguments... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.stream = stream;
  Check(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...),
        "start a kernel");
}

}  // namespace muster::cuda
#endif

namespace muster::cuda {

constexpr int kBlock = 256;

// Makes four blocks fit on a multiprocessor. Used for kernels in which some nvcc versions would use
// more than 64 registers.
#define MUSTER_FOUR_BLOCKS __launch_bounds__(::muster::cuda::kBlock, 4)

// Starts kernel(arguments...), which processes `work` items in a grid-stride loop.
template <typename... Parameters, typename... Arguments>
void LaunchOver(const Target& target, int64_t work, void (*kernel)(Parameters...),
                Arguments... arguments) {
  if (work == 0) return;
  const int64_t blocks = std::min<int64_t>((work + kBlock - 1) / kBlock, target.most_blocks);
  Launch(kernel, dim3(static_cast<unsigned>(blocks)), dim3(kBlock), target.stream,
         static_cast<Parameters>(arguments)...);
}

// Starts a kernel that uses one warp for each of `rows` rows.
template <typename... Parameters, typename... Arguments>
void LaunchWarps(const Target& target, int64_t rows, void (*kernel)(Parameters...),
                 Arguments... arguments) {
  LaunchOver(target, rows * 32, kernel, arguments...);
}

}  // namespace muster::cuda
