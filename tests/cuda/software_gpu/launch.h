// Launches a kernel on the software GPU, with the interface of worker/backend/cuda/launch.h.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>

#include "tests/cuda/software_gpu/kernel.h"
#include "worker/backend/cuda/check.h"

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

template <typename... Params, typename... Args>
cudaError_t LaunchKernel(void (*kernel)(Params...), dim3 grid, dim3 block, cudaStream_t stream,
                         Args&&... args) {
  using Call = KernelCall<Params...>;
  auto call = std::make_shared<const Call>(
      Call{kernel, std::tuple<std::decay_t<Params>...>(static_cast<Params>(args)...)});
  return EnqueueKernel({.function = reinterpret_cast<const void*>(kernel),
                        .invoke = Call::Invoke,
                        .arguments = std::move(call),
                        .grid = grid,
                        .block = block},
                       stream);
}

}  // namespace muster::software_gpu

namespace muster::cuda {

template <typename... Params, typename... Args>
void Launch(void (*kernel)(Params...), dim3 grid, dim3 block, cudaStream_t stream, Args&&... args) {
  Check(software_gpu::LaunchKernel(kernel, grid, block, stream, std::forward<Args>(args)...),
        "start a kernel");
}

}  // namespace muster::cuda
