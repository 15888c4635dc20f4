#include "worker/backend/cuda/cudnn.h"

#include <dlfcn.h>
#include <fmt/core.h>

#include <optional>

#include "common/base/error.h"
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
  // Loaded for good, by its name: whoever loaded it from another folder has done so before.
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

}  // namespace

void Cudnn::Check(cudnnStatus_t result, const char* what) const {
  if (result == CUDNN_STATUS_SUCCESS) return;
  throw Error(ExitCode::kFailure,
              "the card of this worker cannot {}: cuDNN says {} ({}); worker.convolution=GEMM does "
              "without cuDNN",
              what, functions_.cudnnGetErrorString(result), static_cast<int>(result));
}

// Delegates, so that the handle goes where the rest fails.
Cudnn::Cudnn(const CudnnFunctions& functions, cudaStream_t stream) : Cudnn(functions) {
  Check(functions_.cudnnCreate(&handle_), "start cuDNN");
  Check(functions_.cudnnSetStream(handle_, stream), "give cuDNN its stream");
}

Cudnn::~Cudnn() {
  if (handle_ != nullptr) (void)functions_.cudnnDestroy(handle_);
}

std::shared_ptr<const Cudnn> FindCudnn(cudaStream_t stream) {
  const std::optional<CudnnFunctions> functions = FindFunctions();
  if (!functions || functions->cudnnGetVersion() / 10000 != 9) return nullptr;
  return std::make_shared<const Cudnn>(*functions, stream);
}

std::string VersionOf(const Cudnn& cudnn) {
  const size_t version = cudnn->cudnnGetVersion();
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

std::string WhyNoCudnn() {
  return "cuDNN 9 (libcudnn.so.9) is not found; put its folder on LD_LIBRARY_PATH";
}

}  // namespace muster::cuda
