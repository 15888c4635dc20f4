#include "worker/backend/cuda/check.h"

#include <fmt/core.h>

#include <cstdlib>
#include <string>

#include "common/base/error.h"

namespace muster::cuda {
namespace {

// A card that is lost can be asked for nothing; where the launcher gave it, its name is here.
std::string CardOfThisWorker() {
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (visible == nullptr || *visible == '\0') return "the card of this worker";
  return fmt::format("the card of this worker ({})", visible);
}

}  // namespace

void Check(cudaError_t result, const char* what) {
  if (result == cudaSuccess) return;
  (void)cudaGetLastError();  // or the next call would report it again
  throw Error(ExitCode::kFailure, "{} cannot {}: CUDA says {} ({}, {})", CardOfThisWorker(), what,
              cudaGetErrorString(result), cudaGetErrorName(result), static_cast<int>(result));
}

void Check(cublasStatus_t result, const char* what) {
  if (result == CUBLAS_STATUS_SUCCESS) return;
  throw Error(ExitCode::kFailure, "{} cannot {}: cuBLAS says {} ({})", CardOfThisWorker(), what,
              cublasGetStatusString(result), static_cast<int>(result));
}

}  // namespace muster::cuda
