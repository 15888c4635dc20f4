// Checks the results of calls to CUDA and its libraries. If a call has failed, throws an Error with
// the call's purpose and the library's message.
#pragma once

#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include <cstddef>

namespace muster::cuda {

// `what` completes "cannot …".
void Check(cudaError_t result, const char* what);
void Check(cublasStatus_t result, const char* what);
// CUDA reports a lack of page-locked memory with the same code as a lack of GPU memory.
void CheckHostAlloc(cudaError_t result, size_t bytes);

}  // namespace muster::cuda
