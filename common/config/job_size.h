// Chooses the number of workers and slices if the config does not set them. The bits of the result
// depend on the slices. On CPUs, the number of slices depends only on the batch if the number of
// workers allows it, so a machine with more cores gets more workers but the same bits. On GPUs, it
// also depends on the number of workers.
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
constexpr int64_t kLeastSliceSamples = 16;
// The same for a GPU, which smaller slices would leave partly idle.
constexpr int64_t kLeastCardSamples = 64;

// Returns 8, or 4, 2 or 1 if 8 slices would have fewer than kLeastSliceSamples each.
uint32_t SlicesOfBatch(int64_t global_batch);

// Returns SlicesOfBatch if the workers can share them evenly, otherwise one slice per worker.
uint32_t DefaultSlices(int64_t global_batch, uint32_t workers);

// The same for workers that compute on GPUs. A GPU is fastest with one large slice, so a worker
// gets one or two: 1 and 2 workers have 2 slices, 4 and 8 have 8, 16 and 32 have 32. By default,
// both worker counts of a pair give the same bits. With any other count, or with fewer than
// kLeastCardSamples per slice, each worker gets one slice. Set run.slices to get the same bits for
// more worker counts.
uint32_t DefaultSlicesOfCards(int64_t global_batch, uint32_t workers);

// Returns the largest divisor of `slices` that leaves each worker `threads` cores, at least 1.
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
