// The device that a worker computes on, as selected by the config: the CPU or a GPU.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "proto/config_fwd.h"
#include "worker/backend/backend.h"
#include "worker/backend/gpu_adder.h"

namespace muster {

struct WorkerDevice {
  std::unique_ptr<Backend> backend;
  std::string arithmetic;  // text that names what the bits depend on
};

// `config` must be resolved. With worker.soft_placement, falls back to the CPU with a warning if
// this machine has no usable CUDA (NoGpu). Always throws Error if a GPU fails or has too little
// memory.
WorkerDevice MakeWorkerDevice(const config::Config& config, uint32_t rank);

// The adder of a relay. Throws Error if CUDA or a GPU does not work, or if one cannot read the
// memory of the others.
std::unique_ptr<GpuAdder> MakeGpuAdder(const config::Config& config);

// If the device is a GPU, compares its results for this job's operations with the CPU's
// (worker/nn/self_test.h), in slices of up to `batch` samples. If they differ or the GPU fails,
// throws an Error(kRefused) that names the GPU and the operation.
void TestDevice(const config::Config& config, const Graph& graph, int64_t batch,
                const WorkerDevice& device);

}  // namespace muster
