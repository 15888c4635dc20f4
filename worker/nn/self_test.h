// Before the first step on a GPU: the products, convolutions and reductions of the job, forward and
// back, against another backend. A GPU, driver or library that computes wrongly is found here, and
// not in spoilt weights.
#pragma once

#include <cstdint>
#include <string>

#include "common/graph/graph.h"
#include "worker/backend/backend.h"

namespace muster {

struct SelfTestResult {
  int operations = 0;  // that were compared
  // "" if all agree. "computes wrongly: layer …, got and expected", or "fails: layer …: why".
  std::string failure;
};

// Ops on `device` are made for `batch` samples, those on `reference` (which computes in the host's
// memory) for a few, of which the device gets copies: the same results again and again, and
// gradients of variables that are so many times larger. Results may differ by `tolerance`, relative
// to the largest number of a tensor. Each kind and shape of op is tested once, with what the plan
// makes part of it. Both backends are used by the calling thread. Throws OutOfDeviceMemory.
SelfTestResult RunSelfTest(const Graph& graph, int64_t batch, double tolerance, Backend& device,
                           Backend& reference);

}  // namespace muster
