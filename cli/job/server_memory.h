// How much memory a job's server needs for its arrays. From the config and the network alone;
// libraries, code and small things come on top: about 12 MB.
#pragma once

#include <vector>

#include "common/graph/graph.h"
#include "common/plan/memory_rows.h"
#include "proto/config_fwd.h"

namespace muster {

// Planes, optimizer state, the workers' gradients.
std::vector<MemoryRow> ServerMemory(const config::Config& config, const Graph& graph);

}  // namespace muster
