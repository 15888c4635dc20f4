// The CUDA backend: products by cuBLAS, convolutions by cuBLAS or cuDNN, everything else by own
// kernels, in float or with activations in bfloat16.
//
// Results have the same bits from run to run for the same card, libraries and options.
#pragma once

#include <memory>

#include "worker/backend/cuda/plugin.h"

namespace muster::cuda {

// Throws Error where there is no card to work with.
CudaWorker MakeCudaWorker(const CudaOptions& options);

}  // namespace muster::cuda
