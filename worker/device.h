// The device of a worker as the config selects it: the CPU or a GPU.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "proto/config_fwd.h"
#include "worker/backend/backend.h"

namespace muster {

struct WorkerDevice {
  std::unique_ptr<Backend> backend;
  std::string arithmetic;  // what the bits depend on, as text
};

// `config` must be resolved. With worker.soft_placement, falls back to the CPU with a warning if
// this machine has no usable CUDA (NoGpu). A GPU that fails or has too little memory is always an
// Error.
WorkerDevice MakeWorkerDevice(const config::Config& config, uint32_t rank);

// On a GPU: compares the operations of this job with the CPU (worker/nn/self_test.h), with slices
// of up to `batch` samples. Throws Error(kRefused) that names GPU and operation if they differ or
// the GPU fails.
void TestDevice(const config::Config& config, const Graph& graph, int64_t batch,
                const WorkerDevice& device);

}  // namespace muster
