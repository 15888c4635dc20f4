#include "worker/backend/cuda/code.h"
#include "worker/backend/cuda/launch.h"

namespace muster::cuda {
namespace {

// All kernels are compiled for the same GPUs, so any one will do.
__global__ void AnyKernel() {}

}  // namespace

bool HasCode() {
  cudaFuncAttributes attributes{};
  const cudaError_t result =
      cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(&AnyKernel));
  switch (result) {
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorInvalidDeviceFunction:
    case cudaErrorUnsupportedPtxVersion:  // made by a toolkit newer than the driver
      (void)cudaGetLastError();
      return false;
    default:
      Check(result, "look up its kernels");
      return true;
  }
}

std::string Architectures() {
#ifdef __CUDA_ARCH_LIST__
  std::string text;
  for (const int architecture : {__CUDA_ARCH_LIST__}) {
    text += (text.empty() ? "sm_" : ", sm_") + std::to_string(architecture / 10);
  }
  return text + " and compatible GPUs";
#else
  return "unknown GPUs";
#endif
}

}  // namespace muster::cuda
