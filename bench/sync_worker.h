// A worker of sync_bench: pushes prepared gradients and waits for the weights.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/sync_job.h"

namespace muster::bench {

// Runs one worker to the end of the job. Returns the duration of each round in seconds, or nothing
// if the weights were wrong.
std::vector<double> WorkInRounds(const SyncJob& job, uint32_t rank);

}  // namespace muster::bench
