// Runs before the first step on a GPU: compares the job's products, convolutions and reductions,
// forward and backward, with another backend. Detects a broken GPU, driver or library before it
// corrupts weights.
#pragma once

#include <cstdint>
#include <string>

#include "common/graph/graph.h"
#include "worker/backend/backend.h"

namespace muster {

struct SelfTestResult {
  int operations = 0;  // the number of compared operations
  // "" if all agree, else "wrong result of layer …: got and expected" or "error in layer …: why".
  std::string failure;
};

// Ops on `device` are made for `batch` samples, those on `reference` (which computes in host
// memory) for a few samples. The device gets copies of these few samples. It must repeat their
// results; its gradients of variables are larger by a factor of the number of copies. Results may
// differ by `tolerance`, relative to the largest value of a tensor. Each kind and shape of op is
// tested once, with what the plan fuses into it. The calling thread uses both backends. Throws
// OutOfDeviceMemory if the device has too little memory.
SelfTestResult RunSelfTest(const Graph& graph, int64_t batch, double tolerance, Backend& device,
                           Backend& reference);

}  // namespace muster
