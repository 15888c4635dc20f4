// The CUDA backend: cuBLAS for products, cuBLAS or cuDNN for convolutions, and our own kernels for
// everything else, in float or with activations in bfloat16 or half.
//
// Results are bit-identical from run to run for the same GPU, libraries and options.
#pragma once

#include <memory>

#include "worker/backend/cuda/plugin.h"

namespace muster::cuda {

// Throws Error if there is no usable GPU.
CudaWorker MakeCudaWorker(const CudaOptions& options);

}  // namespace muster::cuda
