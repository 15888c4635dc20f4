#include "worker/backend/cuda/check.h"

#include "common/base/error.h"

namespace muster::cuda {

void Check(cudaError_t result, const char* what) {
  if (result == cudaSuccess) return;
  (void)cudaGetLastError();  // or the next call would report it again
  throw Error(ExitCode::kFailure, "the card of this worker cannot {}: CUDA says {} ({}, {})", what,
              cudaGetErrorString(result), cudaGetErrorName(result), static_cast<int>(result));
}

void Check(cublasStatus_t result, const char* what) {
  if (result == CUBLAS_STATUS_SUCCESS) return;
  throw Error(ExitCode::kFailure, "the card of this worker cannot {}: cuBLAS says {} ({})", what,
              cublasGetStatusString(result), static_cast<int>(result));
}

}  // namespace muster::cuda
