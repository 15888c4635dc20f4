// The memory of a worker, without a job: what `muster-worker --memory` prints and a dry run shows.
#pragma once

#include <cstdint>
#include <vector>

#include "common/graph/graph.h"
#include "common/plan/memory_rows.h"
#include "proto/config_fwd.h"
#include "worker/data/dataset.h"
#include "worker/nn/tower.h"

namespace muster {

// All arrays of the worker of this rank. The sizes of its tower are the tower's own, which is
// planned here and allocates nothing; what `backend` holds by then is its own. Without data (null)
// every batch is taken as full. Throws Error where the network cannot be run as configured.
std::vector<MemoryRow> WorkerMemory(const config::Config& config, const Graph& graph,
                                    const Datasets& data, uint32_t rank, Backend& backend,
                                    Tower& tower);

}  // namespace muster
