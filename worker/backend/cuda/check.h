// Calls of CUDA and its libraries that are checked: a call that fails throws an Error that says
// what was to be done and what the library says.
#pragma once

#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include <cstddef>

namespace muster::cuda {

// `what` completes "cannot …".
void Check(cudaError_t result, const char* what);
void Check(cublasStatus_t result, const char* what);
// CUDA reports too little page-locked memory as it reports too little of the card's.
void CheckHostAlloc(cudaError_t result, size_t bytes);

}  // namespace muster::cuda
