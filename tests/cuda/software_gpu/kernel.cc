#include "tests/cuda/software_gpu/kernel.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "tests/cuda/software_gpu/block_runner.h"
#include "tests/cuda/software_gpu/device.h"
#include "tests/cuda/software_gpu/random.h"
#include "tests/cuda/software_gpu/violation.h"

namespace muster::software_gpu {
namespace {

constexpr unsigned kMostThreads = 256;

// A GPU takes larger blocks of some kernels. But any kernel may have 256 threads, even if each
// needs the most registers that there are (255 of 65,536), and the backend's have no more: some
// promise it to nvcc (__launch_bounds__).
std::string WrongLaunch(const Kernel& kernel) {
  const dim3 grid = kernel.grid, block = kernel.block;
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > 0x7fffffff || grid.y > 65535 ||
      grid.z > 65535) {
    return fmt::format("a grid of {} x {} x {} (at most 2147483647 x 65535 x 65535)", grid.x,
                       grid.y, grid.z);
  }
  if (block.x == 0 || block.x > kMostThreads || block.x % kWarp != 0 || block.y * block.z != 1) {
    return fmt::format("a block of {} x {} x {} threads (expected whole warps, at most {})",
                       block.x, block.y, block.z, kMostThreads);
  }
  return "";
}

void RunKernel(const Kernel& kernel, const Work& work) {
  static thread_local std::unique_ptr<BlockRunner> runner;
  Device& device = Device::Get();
  if (device.KernelFails()) return;
  if (!runner) {
    runner = std::make_unique<BlockRunner>(
        device.memory(), Mix(device.options().seed * 31 + static_cast<uint64_t>(work.slot)));
  }
  work.stream.OpenMemory();
  runner->Run(kernel, work);
}

BlockRunner& Here() { return *BlockRunner::Current(); }

}  // namespace

cudaError_t EnqueueKernel(Kernel kernel, cudaStream_t stream) {
  return RuntimeCall("cudaLaunchKernel", CallKind::kAnywhere, [&] {
    Device& device = Device::Get();
    Stream* const on = device.Find(stream, "a kernel");
    if (on == nullptr) return cudaErrorInvalidResourceHandle;
    const std::string wrong = WrongLaunch(kernel);
    if (!wrong.empty()) {
      return Refuse(cudaErrorInvalidConfiguration,
                    fmt::format("a launch of {} with {}", DescribeCode(kernel.function), wrong));
    }
    const void* const function = kernel.function;
    on->Push(device.known(), "a kernel", function,
             [kernel = std::move(kernel)](const Work& work) { RunKernel(kernel, work); });
    return cudaSuccess;
  });
}

uint3 ThreadIndex() noexcept { return {Here().lane().number, 0, 0}; }
uint3 BlockIndex() noexcept { return Here().block_index(); }
dim3 BlockSize() noexcept { return Here().kernel().block; }
dim3 GridSize() noexcept { return Here().kernel().grid; }
void SyncThreads(Where where) {
  Here().SyncThreads(where);
  Here().Leave();
}
void ShuffleXor(uint32_t mask, void* value, size_t bytes, uint32_t bits, Where where) {
  Here().ShuffleXor(mask, value, bytes, bits, where);
  Here().Leave();
}

}  // namespace muster::software_gpu
