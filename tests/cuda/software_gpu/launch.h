// Launches a kernel on the software GPU, with the interface of worker/backend/cuda/launch.h.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>

#include "common/base/error.h"
#include "tests/cuda/software_gpu/kernel.h"

namespace muster::software_gpu {

template <typename... Params>
struct KernelCall {
  void (*kernel)(Params...);
  std::tuple<std::decay_t<Params>...> arguments;

  // Not instrumented: the copied arguments are in host memory.
  [[gnu::no_sanitize("thread")]] static void Invoke(const void* call) {
    const auto& self = *static_cast<const KernelCall*>(call);
    self.InvokeWith(std::index_sequence_for<Params...>());
  }
  template <size_t... kIndex>
  [[gnu::no_sanitize("thread")]] void InvokeWith(std::index_sequence<kIndex...>) const {
    kernel(std::get<kIndex>(arguments)...);
  }
};

}  // namespace muster::software_gpu

namespace muster::software_gpu {

template <typename... Params, typename... Args>
cudaError_t LaunchKernel(void (*kernel)(Params...), dim3 grid, dim3 block, size_t shared_bytes,
                         cudaStream_t stream, Args&&... args) {
  using Call = KernelCall<Params...>;
  auto call = std::make_shared<const Call>(
      Call{kernel, std::tuple<std::decay_t<Params>...>(static_cast<Params>(args)...)});
  return EnqueueKernel({.function = reinterpret_cast<const void*>(kernel),
                        .invoke = Call::Invoke,
                        .arguments = std::move(call),
                        .grid = grid,
                        .block = block,
                        .shared_bytes = shared_bytes},
                       stream);
}

}  // namespace muster::software_gpu

namespace muster::cuda {

// The kernel's dynamic shared memory, of the size given at launch.
template <typename T>
T* DynamicShared() {
  return static_cast<T*>(software_gpu::SharedBytes());
}

template <typename... Params, typename... Args>
void LaunchWithShared(void (*kernel)(Params...), dim3 grid, dim3 block, size_t shared_bytes,
                      cudaStream_t stream, Args&&... args) {
  const cudaError_t error = software_gpu::LaunchKernel(kernel, grid, block, shared_bytes, stream,
                                                       std::forward<Args>(args)...);
  if (error != cudaSuccess) {
    throw Error(ExitCode::kFailure, "cannot start a kernel: {} ({})", cudaGetErrorString(error),
                cudaGetErrorName(error));
  }
}

template <typename... Params, typename... Args>
void Launch(void (*kernel)(Params...), dim3 grid, dim3 block, cudaStream_t stream, Args&&... args) {
  LaunchWithShared(kernel, grid, block, 0, stream, std::forward<Args>(args)...);
}

}  // namespace muster::cuda
