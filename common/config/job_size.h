// The number of workers and slices, if the config does not set them. The bits of a result depend on
// the slices. On CPUs the slices follow from the batch alone if the number of workers allows it: a
// machine with more cores gets more workers but the same bits. On GPUs the slices also depend on
// the number of workers.
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
// The same on a GPU, which smaller slices would leave idle.
constexpr int64_t kLeastCardSamples = 64;

// Returns 8, or 4, 2 or 1 if 8 slices would have fewer than kLeastSliceSamples each.
uint32_t SlicesOfBatch(int64_t global_batch);

// Returns SlicesOfBatch if they can be dealt evenly to the workers; otherwise one slice per worker.
uint32_t DefaultSlices(int64_t global_batch, uint32_t workers);

// The same for workers that compute on GPUs. A GPU is fastest with one large slice, so a worker
// gets one or two: 1 and 2 workers have 2 slices, 4 and 8 have 8, 16 and 32 have 32. Both worker
// counts of such a pair give the same bits by default. Any other count has one slice per worker,
// and so has a batch with fewer than kLeastCardSamples per slice. Set run.slices to get the same
// bits on more worker counts.
uint32_t DefaultSlicesOfCards(int64_t global_batch, uint32_t workers);

// The largest divisor of `slices` such that each worker has `threads` cores. At least 1.
uint32_t DefaultWorkers(uint32_t slices, int cores, uint32_t threads);

// Fills in cluster.workers, run.slices and worker.threads where the config does not set them.
void ResolveJobSize(config::Config& config, int cores);

// The batch size in both forms, whichever the config gives. cluster.workers must be known.
struct BatchSizes {
  int64_t global_batch;
  double per_worker;  // on average
};
BatchSizes ResolveBatch(const config::Config& config);

// Plans the steps of a resolved config for a training set of `train_samples`.
StepPlan PlanSteps(const config::Config& config, int64_t train_samples);

// The initial assignment of a job. `config` must be resolved.
Assignment FirstAssignment(const config::Config& config);

// The maximum number of workers at the same time; their ranks start at 0. More than cluster.workers
// if the job continues with workers that join later. `config` must be resolved.
uint32_t MostWorkers(const config::Config& config);

// Whether a setting makes the batch or the learning rate, and so the bits, depend on `workers`.
bool FollowsWorkers(const config::Config& config);

// Throws Error(kUsage) if there would be more chunks than a message can number.
std::vector<Chunk> CutChunks(const VariableLayout& layout, const config::Cluster& cluster);

// Whether server and workers on one host map the same weights and gradients. AUTO does, except on
// old kernels.
bool SharesMemory(const config::Config& config);

}  // namespace muster
