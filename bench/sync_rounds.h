// The processes of sync_bench.
#pragma once

#include <vector>

#include "bench/sync_job.h"

namespace muster::bench {

struct SyncRounds {
  std::vector<double> seconds;  // by round after the warm-up, as seen by worker 0
  double memory = 0;            // of server and workers together in bytes, with --memory
};

// Starts the server and the workers, and waits for their end. Throws Error(kPeerFailed) if one
// failed or got wrong weights.
SyncRounds RunSyncRounds(SyncJob job);

}  // namespace muster::bench
