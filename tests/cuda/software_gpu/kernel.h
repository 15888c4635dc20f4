// Kernels, as launched by launch.h, and what they call: language.h gives it CUDA's names.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

namespace muster::software_gpu {

struct Kernel {
  const void* function = nullptr;
  // Runs one thread of a block with the arguments copied at the launch.
  void (*invoke)(const void* arguments) = nullptr;
  std::shared_ptr<const void> arguments;
  dim3 grid;
  dim3 block;
};

cudaError_t EnqueueKernel(Kernel kernel, cudaStream_t stream);

// A source line of a kernel.
struct Where {
  const char* file = "";
  int line = 0;

  bool operator==(const Where& other) const {
    return line == other.line && (file == other.file || std::strcmp(file, other.file) == 0);
  }
};

// The index of the calling thread. Constant during its life.
[[gnu::const]] uint3 ThreadIndex() noexcept;
[[gnu::const]] uint3 BlockIndex() noexcept;
[[gnu::const]] dim3 BlockSize() noexcept;
[[gnu::const]] dim3 GridSize() noexcept;

void SyncThreads(Where where);
// Exchanges `bytes` bytes with the thread of the warp whose number differs by these bits.
void ShuffleXor(uint32_t mask, void* value, size_t bytes, uint32_t bits, Where where);

}  // namespace muster::software_gpu
