#include "worker/backend/cuda/check.h"

#include <fmt/core.h>

#include <cstdlib>
#include <string>

#include "common/base/error.h"
#include "worker/backend/backend.h"

namespace muster::cuda {
namespace {

// A card that is lost can be asked for nothing; where the launcher gave it, its name is here.
std::string CardOfThisWorker() {
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (visible == nullptr || *visible == '\0') return "the card of this worker";
  return fmt::format("the card of this worker ({})", visible);
}

// What to do about failures whose names do not say it.
const char* HintFor(cudaError_t result) {
  switch (result) {
    case cudaErrorSystemNotReady:
      return "; cards that NVSwitch joins need NVIDIA's fabric manager: is nvidia-fabricmanager "
             "running?";
    case cudaErrorSystemDriverMismatch:
      return "; the driver's library and its kernel module are of different versions: start the "
             "machine anew";
    case cudaErrorCompatNotSupportedOnDevice:
      return "; the libraries for forward compatibility (cuda-compat) do not serve this card: "
             "install a newer driver in their place";
    case cudaErrorDevicesUnavailable:
      return "; it is lost, or another process has it for itself (nvidia-smi says the compute "
             "mode)";
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorLaunchFailure:
      return "; work that was queued before may have failed: CUDA_LAUNCH_BLOCKING=1 shows which";
    default:
      return "";
  }
}

}  // namespace

void Check(cudaError_t result, const char* what) {
  if (result == cudaSuccess) return;
  (void)cudaGetLastError();  // or the next call would report it again
  if (result == cudaErrorMemoryAllocation) {
    throw OutOfDeviceMemory(ExitCode::kFailure,
                            "out of memory: {} cannot {} (`muster gpus` shows who has its memory); "
                            "use a smaller batch or more slices, or --devices cpu",
                            CardOfThisWorker(), what);
  }
  throw Error(ExitCode::kFailure, "{} cannot {}: CUDA says {} ({}, {}){}", CardOfThisWorker(), what,
              cudaGetErrorString(result), cudaGetErrorName(result), static_cast<int>(result),
              HintFor(result));
}

void CheckHostAlloc(cudaError_t result, size_t bytes) {
  if (result != cudaErrorMemoryAllocation) return Check(result, "allocate page-locked memory");
  (void)cudaGetLastError();
  throw OutOfDeviceMemory(ExitCode::kFailure,
                          "out of memory: this host cannot give the worker {:.1f} MB of "
                          "page-locked memory; use fewer workers, or raise the limit of its "
                          "container or ulimit -l",
                          1e-6 * static_cast<double>(bytes));
}

void Check(cublasStatus_t result, const char* what) {
  if (result == CUBLAS_STATUS_SUCCESS) return;
  // What cuBLAS says when it cannot allocate what it starts with.
  const bool memory =
      result == CUBLAS_STATUS_ALLOC_FAILED || result == CUBLAS_STATUS_NOT_INITIALIZED;
  const std::string text =
      fmt::format("{} cannot {}: cuBLAS says {} ({})", CardOfThisWorker(), what,
                  cublasGetStatusString(result), static_cast<int>(result));
  if (!memory) throw Error(ExitCode::kFailure, text);
  throw OutOfDeviceMemory(
      ExitCode::kFailure,
      "{}; the GPU may have no memory left (`muster gpus` shows who has it), or --devices cpu",
      text);
}

}  // namespace muster::cuda
