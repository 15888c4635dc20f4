// Kernels, as launched by language.h and launch.h.
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
  size_t shared_bytes = 0;
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

enum class WarpOperation { kIndex, kDown, kUp, kXor, kBallot, kSync };

// The index of the calling thread. Constant during its life.
[[gnu::const]] uint3 ThreadIndex() noexcept;
[[gnu::const]] uint3 BlockIndex() noexcept;
[[gnu::const]] dim3 BlockSize() noexcept;
[[gnu::const]] dim3 GridSize() noexcept;
[[gnu::const]] void* SharedBytes() noexcept;

void SyncThreads(Where where);
// A collective operation of a warp. `value`, of `bytes` bytes, is this thread's input and receives
// the result. `operand` is a lane, distance or mask, depending on the operation.
void WarpTogether(WarpOperation operation, uint32_t mask, void* value, size_t bytes,
                  uint32_t operand, uint32_t width, Where where);
// Call before an atomic operation on this address.
void CheckAtomic(const void* address, size_t bytes);
// Implements __trap.
void Trap(Where where);

}  // namespace muster::software_gpu
