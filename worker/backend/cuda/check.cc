#include "worker/backend/cuda/check.h"

#include <fmt/core.h>

#include <cstdlib>
#include <string>

#include "common/base/error.h"
#include "worker/backend/backend.h"

namespace muster::cuda {
namespace {

// Uses the name that the launcher has given, because a lost GPU cannot be queried.
std::string CardOfThisWorker() {
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (visible == nullptr || *visible == '\0') return "this worker's GPU";
  return fmt::format("this worker's GPU ({})", visible);
}

// Advice for errors whose names do not suggest what to do.
const char* HintFor(cudaError_t result) {
  switch (result) {
    case cudaErrorSystemNotReady:
      return "; GPUs with NVSwitch need NVIDIA's fabric manager: check that nvidia-fabricmanager "
             "is running";
    case cudaErrorSystemDriverMismatch:
      return "; the driver's library and kernel module have different versions: reboot the machine";
    case cudaErrorCompatNotSupportedOnDevice:
      return "; the forward compatibility libraries (cuda-compat) do not support this GPU: install "
             "a newer driver instead";
    case cudaErrorDevicesUnavailable:
      return "; it is lost, or another process uses it exclusively (nvidia-smi shows the compute "
             "mode)";
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorLaunchFailure:
      return "; earlier queued work may have failed: CUDA_LAUNCH_BLOCKING=1 shows which";
    default:
      return "";
  }
}

}  // namespace

void Check(cudaError_t result, const char* what) {
  if (result == cudaSuccess) return;
  (void)cudaGetLastError();  // else the next call would report it again
  if (result == cudaErrorMemoryAllocation) {
    throw OutOfDeviceMemory(ExitCode::kFailure,
                            "out of memory: {} cannot {} (`muster gpus` shows its memory use); use "
                            "a smaller batch, more slices, or --devices cpu",
                            CardOfThisWorker(), what);
  }
  throw Error(ExitCode::kFailure, "{} cannot {}: CUDA reports {} ({}, {}){}", CardOfThisWorker(),
              what, cudaGetErrorString(result), cudaGetErrorName(result), static_cast<int>(result),
              HintFor(result));
}

void CheckHostAlloc(cudaError_t result, size_t bytes) {
  if (result != cudaErrorMemoryAllocation) return Check(result, "allocate page-locked memory");
  (void)cudaGetLastError();
  throw OutOfDeviceMemory(ExitCode::kFailure,
                          "out of memory: cannot allocate {:.1f} MB of page-locked host memory; "
                          "use fewer workers, or raise the container's limit or ulimit -l",
                          1e-6 * static_cast<double>(bytes));
}

void Check(cublasStatus_t result, const char* what) {
  if (result == CUBLAS_STATUS_SUCCESS) return;
  // cuBLAS reports these if it cannot allocate memory when it starts.
  const bool memory =
      result == CUBLAS_STATUS_ALLOC_FAILED || result == CUBLAS_STATUS_NOT_INITIALIZED;
  const std::string text =
      fmt::format("{} cannot {}: cuBLAS reports {} ({})", CardOfThisWorker(), what,
                  cublasGetStatusString(result), static_cast<int>(result));
  if (!memory) throw Error(ExitCode::kFailure, text);
  throw OutOfDeviceMemory(
      ExitCode::kFailure,
      "{}; the GPU may be out of memory (see `muster gpus`); free memory, or use --devices cpu",
      text);
}

}  // namespace muster::cuda
