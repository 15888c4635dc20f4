// The relay's part of the CUDA backend.
#pragma once

#include <memory>

#include "worker/backend/cuda/plugin.h"
#include "worker/backend/gpu_adder.h"

namespace muster::cuda {

// Adds on GPU 0 of CUDA_VISIBLE_DEVICES, which reads the memory of the others.
std::unique_ptr<GpuAdder> MakeGpuAdder(const CudaOptions& options);

}  // namespace muster::cuda
