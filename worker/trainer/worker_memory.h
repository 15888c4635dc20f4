// The memory of a worker, computed without a job, for `muster-worker memory` and dry runs.
#pragma once

#include <cstdint>
#include <vector>

#include "common/graph/graph.h"
#include "common/plan/memory_rows.h"
#include "proto/config_fwd.h"
#include "worker/data/dataset.h"
#include "worker/nn/tower.h"

namespace muster {

// Lists all arrays of the worker with this rank. The tower is planned but not allocated; what
// `backend` already holds is included. Without data (null) every batch counts as full. Throws Error
// if the network cannot run as configured.
std::vector<MemoryRow> WorkerMemory(const config::Config& config, const Graph& graph,
                                    const Datasets& data, uint32_t rank, Backend& backend,
                                    Tower& tower);

}  // namespace muster
