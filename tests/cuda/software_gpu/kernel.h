// Kernels, as language.h and launch.h hand them over.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

namespace muster::software_gpu {

struct Kernel {
  const void* function = nullptr;
  // Calls it with the arguments that were copied when it was launched, as one thread of a block.
  void (*invoke)(const void* arguments) = nullptr;
  std::shared_ptr<const void> arguments;
  dim3 grid;
  dim3 block;
  size_t shared_bytes = 0;
};

// Queues it.
cudaError_t EnqueueKernel(Kernel kernel, cudaStream_t stream);

// A line of a kernel's source.
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
// What the threads of a warp do together: `value` of `bytes` is this thread's, and becomes the
// result. `operand`: a lane, a distance or a mask, as the operation wants.
void WarpTogether(WarpOperation operation, uint32_t mask, void* value, size_t bytes,
                  uint32_t operand, uint32_t width, Where where);
// Before an atomic operation on what is there.
void CheckAtomic(const void* address, size_t bytes);
// What __trap does.
void Trap(Where where);

}  // namespace muster::software_gpu
