// A worker of `sync_bench`: pushes gradients that are ready, and awaits the weights.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/sync_job.h"

namespace muster::bench {

// Runs one worker to the job's end; the seconds of each round, or nothing if the weights were
// wrong.
std::vector<double> WorkInRounds(const SyncJob& job, uint32_t rank);

}  // namespace muster::bench
