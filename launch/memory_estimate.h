// How much memory a job's processes will need for their arrays. From the config and the network
// alone; libraries, code and small things come on top.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/config.h"
#include "common/graph.h"

namespace muster {

struct MemoryRow {
  std::string what;
  double bytes;
};

// Arrays of the weights' size that the optimizer keeps.
int OptimizerState(const config::Optimizer& optimizer);

// Planes, optimizer state, gradients on their way.
std::vector<MemoryRow> ServerMemory(const config::Config& config, const Graph& graph);

// Of the worker of this rank: planes, gradients, activations, batches made ahead. `train_samples`
// and `test_samples` bound the batches; -1: unknown, taken as large.
std::vector<MemoryRow> WorkerMemory(const config::Config& config, const Graph& graph, uint32_t rank,
                                    int64_t train_samples, int64_t test_samples);

}  // namespace muster
