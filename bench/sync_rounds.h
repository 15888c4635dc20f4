// Runs the processes of sync_bench.
#pragma once

#include <vector>

#include "bench/sync_job.h"

namespace muster::bench {

struct SyncRounds {
  std::vector<double> seconds;  // of each round after the warm-up, as seen by worker 0
  double memory = 0;            // of server and workers together in bytes, with --memory
};

// Starts the server and the workers, and waits for them to end. Throws Error(kPeerFailed) if one of
// them failed or got wrong weights.
SyncRounds RunSyncRounds(SyncJob job);

}  // namespace muster::bench
