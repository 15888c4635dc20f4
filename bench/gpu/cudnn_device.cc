#include <dlfcn.h>
#include <fmt/core.h>

#include <cstring>
#include <string>
#include <vector>

#include "bench/gpu/bench_device.h"
#include "bench/gpu/cudnn_table.h"
#include "common/base/error.h"
#include "worker/backend/cuda/cudnn.h"
#include "worker/backend/cuda/cudnn_library.h"

namespace muster::cuda {

#if CUDNN_VERSION >= 90800
void PrintCudnnDevice() {
  const BenchDevice device;
  const std::shared_ptr<const Cudnn> cudnn = FindCudnn(device.stream(), true);
  void* const library = ::dlopen("libcudnn.so.9", RTLD_NOW);
  if (cudnn == nullptr || library == nullptr) throw Error(ExitCode::kFailure, "{}", WhyNoCudnn());
  const auto find = [&](const char* name) {
    void* const function = ::dlsym(library, name);
    if (function == nullptr) throw Error(ExitCode::kFailure, "libcudnn.so.9 has no {}", name);
    return function;
  };
#define MUSTER_FIND(name) auto* const name = reinterpret_cast<decltype(&::name)>(find(#name))
  MUSTER_FIND(cudnnBackendCreateDescriptor);
  MUSTER_FIND(cudnnBackendSetAttribute);
  MUSTER_FIND(cudnnBackendFinalize);
  MUSTER_FIND(cudnnBackendGetAttribute);
#undef MUSTER_FIND
  const auto check = [&](cudnnStatus_t status) { cudnn->Check(status, "describe itself"); };
  cudnnBackendDescriptor_t properties{};  // until this program ends
  check(cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &properties));
  cudnnHandle_t handle = cudnn->handle();
  check(cudnnBackendSetAttribute(properties, CUDNN_ATTR_DEVICEPROP_HANDLE, CUDNN_TYPE_HANDLE, 1,
                                 &handle));
  check(cudnnBackendFinalize(properties));
  int64_t size = 0;
  const auto get = [&](int64_t most, char* to) {
    check(cudnnBackendGetAttribute(properties, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                   CUDNN_TYPE_CHAR, most, &size, to));
  };
  get(0, nullptr);
  std::vector<char> text(static_cast<size_t>(size));
  get(size, text.data());
  // Whether the size counts a final zero is not documented.
  fmt::print("{}\n", std::string(text.data(), ::strnlen(text.data(), text.size())));
}
#else
void PrintCudnnDevice() {
  throw Error(ExitCode::kFailure, "built with the headers of cuDNN {}: expected 9.8 or later",
              CUDNN_VERSION);
}
#endif

}  // namespace muster::cuda
