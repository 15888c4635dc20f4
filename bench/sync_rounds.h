// The processes of `sync_bench`.
#pragma once

#include <vector>

#include "bench/sync_job.h"

namespace muster::bench {

struct SyncRounds {
  std::vector<double> seconds;  // of each round after the warm-up, as worker 0 saw it
  double memory = 0;            // bytes of server and workers together, with --memory
};

// Starts the server and the workers, and waits for their end. Throws Error(kPeerFailed) if one of
// them failed or saw wrong weights.
SyncRounds RunSyncRounds(SyncJob job);

}  // namespace muster::bench
