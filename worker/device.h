// What a worker computes on, as its config says: the CPU, or a card where there is one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "proto/config_fwd.h"
#include "worker/backend/backend.h"

namespace muster {

struct WorkerDevice {
  std::unique_ptr<Backend> backend;
  std::string arithmetic;  // what its bits depend on, in words
};

// `config` is resolved. With worker.soft_placement it computes on the CPU, and says so, where CUDA
// is asked for and this machine has none (NoGpu). A GPU that does not work, or has too little
// memory, is an Error in any case.
WorkerDevice MakeWorkerDevice(const config::Config& config, uint32_t rank);

// On a GPU: compares what this job computes there with the CPU (worker/nn/self_test.h), with slices
// of up to `batch` samples. Throws Error(kRefused) that names GPU and operation if they differ or
// the GPU fails.
void TestDevice(const config::Config& config, const Graph& graph, int64_t batch,
                const WorkerDevice& device);

}  // namespace muster
