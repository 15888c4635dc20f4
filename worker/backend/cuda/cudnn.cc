#include "worker/backend/cuda/cudnn.h"

#include <dlfcn.h>
#include <fmt/core.h>

#include <cstdio>
#include <optional>

#include "worker/backend/backend.h"
#include "worker/backend/cuda/cudnn_library.h"

namespace muster::cuda {
namespace {

std::optional<CudnnFunctions> FindFunctions() {
  CudnnFunctions functions;
#ifdef MUSTER_SOFTWARE_GPU
#define MUSTER_FIND(name) functions.name = &::name;
  MUSTER_CUDNN_FUNCTIONS(MUSTER_FIND)
#undef MUSTER_FIND
#else
  // The library is loaded by name and never unloaded. If it lies in another folder, it was already
  // loaded under the same name.
  void* const library = ::dlopen("libcudnn.so.9", RTLD_NOW);
  if (library == nullptr) return std::nullopt;
#define MUSTER_FIND(name)                                                        \
  functions.name = reinterpret_cast<decltype(&::name)>(::dlsym(library, #name)); \
  if (functions.name == nullptr) return std::nullopt;
  MUSTER_CUDNN_FUNCTIONS(MUSTER_FIND)
#undef MUSTER_FIND
#endif
  return functions;
}

// Whether cuDNN reports on startup that it can never work here: a sublibrary is missing or has
// another version, or cuDNN has no code for this GPU or driver.
bool IsUnusable(cudnnStatus_t result) {
  constexpr int kSublibraryLoadingFailed = 1008;  // unnamed in the first releases of cuDNN 9
  return result == CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH ||
         static_cast<int>(result) == kSublibraryLoadingFailed ||
         CUDNN_STATUS_CATEGORY(result) == CUDNN_STATUS_NOT_SUPPORTED;
}

}  // namespace

void Cudnn::Check(cudnnStatus_t result, const char* what) const {
  if (result == CUDNN_STATUS_SUCCESS) return;
  const std::string text = fmt::format(
      "this worker's GPU cannot {}: cuDNN reports {} ({}); set worker.convolution=GEMM to avoid "
      "cuDNN",
      what, functions_.cudnnGetErrorString(result), static_cast<int>(result));
  if (result == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
      result == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED) {
    throw OutOfDeviceMemory(ExitCode::kFailure, text);
  }
  throw Error(ExitCode::kFailure, text);
}

Cudnn::Cudnn(const CudnnFunctions& functions, cudnnHandle_t handle)
    : functions_(functions), handle_(handle) {}

Cudnn::~Cudnn() {
  if (handle_ != nullptr) (void)functions_.cudnnDestroy(handle_);
}

std::shared_ptr<const Cudnn> FindCudnn(cudaStream_t stream, bool required) {
  const std::optional<CudnnFunctions> functions = FindFunctions();
  if (!functions || functions->cudnnGetVersion() / 10000 != 9) return nullptr;
  cudnnHandle_t handle{};
  const cudnnStatus_t started = functions->cudnnCreate(&handle);
  const auto cudnn = std::make_shared<const Cudnn>(*functions, handle);
  if (!required && IsUnusable(started)) {
    fmt::print(stderr, "cuDNN {} does not work here ({}): using cuBLAS for convolutions\n",
               VersionOf(*cudnn), functions->cudnnGetErrorString(started));
    return nullptr;
  }
  cudnn->Check(started, "start cuDNN");
  cudnn->Check(functions->cudnnSetStream(handle, stream), "set the stream of cuDNN");
  return cudnn;
}

std::string VersionOf(const Cudnn& cudnn) {
  const size_t version = cudnn->cudnnGetVersion();
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

std::string WhyNoCudnn() {
  return "cuDNN 9 (libcudnn.so.9) was not found; add its folder to LD_LIBRARY_PATH";
}

}  // namespace muster::cuda
