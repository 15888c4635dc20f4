#include "tests/cuda/software_gpu/kernel.h"

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <utility>

#include "tests/cuda/software_gpu/block_runner.h"
#include "tests/cuda/software_gpu/device.h"
#include "tests/cuda/software_gpu/random.h"
#include "tests/cuda/software_gpu/violation.h"

namespace muster::software_gpu {
namespace {

constexpr size_t kMostThreads = 1024;

std::string WrongLaunch(const Kernel& kernel) {
  const dim3 grid = kernel.grid;
  const dim3 block = kernel.block;
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > 0x7fffffff || grid.y > 65535 ||
      grid.z > 65535) {
    return fmt::format("a grid of {} x {} x {} (at most 2147483647 x 65535 x 65535)", grid.x,
                       grid.y, grid.z);
  }
  const size_t threads = size_t{block.x} * block.y * block.z;
  if (threads == 0 || threads > kMostThreads || block.z > 64) {
    return fmt::format("a block of {} x {} x {} threads (at most 1024, and 64 in z)", block.x,
                       block.y, block.z);
  }
  Device& device = Device::Get();
  const size_t most_shared = device.SharedLimit(kernel.function);
  if (kernel.shared_bytes > most_shared) {
    return fmt::format("{} bytes of dynamic shared memory (at most {})", kernel.shared_bytes,
                       most_shared);
  }
  const std::optional<KernelResources> needs = device.kernels().Find(kernel.function);
  return needs ? WhyTooLarge(*needs, threads, kernel.shared_bytes, most_shared) : "";
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

uint3 ThreadIndex() noexcept { return Here().lane().thread; }
uint3 BlockIndex() noexcept { return Here().block_index(); }
dim3 BlockSize() noexcept { return Here().kernel().block; }
dim3 GridSize() noexcept { return Here().kernel().grid; }
void* SharedBytes() noexcept { return Here().shared_bytes(); }
void SyncThreads(Where where) {
  Here().SyncThreads(where);
  Here().Leave();
}
void WarpTogether(WarpOperation operation, uint32_t mask, void* value, size_t bytes,
                  uint32_t operand, uint32_t width, Where where) {
  Here().WarpTogether(operation, mask, value, bytes, operand, width, where);
  Here().Leave();
}
void CheckAtomic(const void* address, size_t bytes) {
  Here().Touch(address, bytes, AccessKind::kAtomic, __builtin_return_address(0));
  Here().Leave();
}
void Trap(Where where) {
  Here().Abandon(fmt::format("__trap at {}:{}", where.file, where.line));
  Here().Leave();
}

}  // namespace muster::software_gpu
