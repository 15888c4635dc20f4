// Chooses the number of workers and slices if the config does not set them. The bits of the result
// depend on the slices, so these follow the batch alone, not the workers or the machine.
#pragma once

#include <cstdint>
#include <vector>

#include "common/plan/assignment.h"
#include "common/plan/chunks.h"
#include "common/plan/step_plan.h"
#include "proto/config.pb.h"
#include "proto/config_fwd.h"

namespace muster {

// The fewest samples in a default slice. Batch normalisation computes its statistics over a slice,
// and smaller slices are slow, even for small networks.
constexpr int64_t kLeastSliceSamples = 8;
// The same for a GPU, which smaller slices would leave partly idle.
constexpr int64_t kLeastCardSamples = 64;

// Returns 8, or 4, 2 or 1 if 8 slices would have fewer samples than the least. `cards`: whether
// GPUs compute.
uint32_t SlicesOfBatch(int64_t global_batch, bool cards);

// Returns the fewest workers whose largest share of the slices is as small as this machine allows
// with `threads` cores for each worker, at least 1.
uint32_t DefaultWorkers(uint32_t slices, int cores, uint32_t threads);

// Fills in cluster.workers, run.slices and worker.threads where the config does not set them.
void ResolveJobSize(config::Config& config, int cores);

// The batch size in both forms, whichever one the config sets. cluster.workers must be known.
struct BatchSizes {
  int64_t global_batch;
  double per_worker;  // on average
};
BatchSizes ResolveBatch(const config::Config& config);

// Plans the steps of a resolved config for a training set of `train_samples`.
StepPlan PlanSteps(const config::Config& config, int64_t train_samples);

// The initial assignment of a job. `config` must be resolved.
Assignment FirstAssignment(const config::Config& config);

// The maximum number of simultaneous workers; their ranks start at 0. It exceeds cluster.workers if
// workers may join later. `config` must be resolved.
uint32_t MostWorkers(const config::Config& config);

// Whether a setting makes the batch or the learning rate, and therefore the bits, depend on the
// number of workers.
bool FollowsWorkers(const config::Config& config);

// The default of cluster.chunk_bytes where chunks go over sockets.
inline constexpr int64_t kSocketChunk = 1 << 20;

// Throws Error(kUsage) if there would be more chunks than a message can number.
std::vector<Chunk> CutChunks(const VariableLayout& layout, const config::Cluster& cluster);

// Whether server and workers on one host map the same weights and gradients. AUTO does, except on
// old kernels.
bool SharesMemory(const config::Cluster& cluster);

}  // namespace muster
