// How many workers a job has and into how many slices its batch is cut, where the config does not
// say. The bits of a result depend on the slices, so on CPUs these follow from the batch alone
// wherever the workers allow it: a machine with more cores gets more workers and the same bits. On
// GPUs they follow from the number of workers, too.
#pragma once

#include <cstdint>
#include <vector>

#include "common/plan/assignment.h"
#include "common/plan/chunks.h"
#include "common/plan/step_plan.h"
#include "proto/config.pb.h"
#include "proto/config_fwd.h"

namespace muster {

// Of a slice that is cut by default: what batch normalisation takes its statistics over, and
// less than this is slow for small networks, too.
constexpr int64_t kLeastSliceSamples = 16;
// The same on a GPU, which smaller slices leave idle.
constexpr int64_t kLeastCardSamples = 64;

// 8, or 4, 2 or 1 where so many slices would have fewer than kLeastSliceSamples each.
uint32_t SlicesOfBatch(int64_t global_batch);

// SlicesOfBatch, if that many slices can be dealt out evenly to so many workers; else one for each
// of them.
uint32_t DefaultSlices(int64_t global_batch, uint32_t workers);

// The same where workers compute on GPUs. A GPU is fastest with one large slice, so a worker gets
// one or two: 1 and 2 workers have 2 slices, 4 and 8 have 8, 16 and 32 have 32. The workers of such
// a pair give the same bits by default. Any other number has one slice for each worker, and so has
// a batch that leaves a slice fewer than kLeastCardSamples. Bits that are the same on more numbers
// of workers need run.slices.
uint32_t DefaultSlicesOfCards(int64_t global_batch, uint32_t workers);

// The largest divisor of `slices` for which there are cores, `threads` for each worker. At least 1.
uint32_t DefaultWorkers(uint32_t slices, int cores, uint32_t threads);

// Fills in cluster.workers, run.slices and worker.threads. What the config says stays.
void ResolveJobSize(config::Config& config, int cores);

// The batch size both ways, whichever the config gives. cluster.workers must be known.
struct BatchSizes {
  int64_t global_batch;
  double per_worker;  // on average
};
BatchSizes ResolveBatch(const config::Config& config);

// The steps of a resolved config on a training set of that size.
StepPlan PlanSteps(const config::Config& config, int64_t train_samples);

// The assignment that a job begins with. `config` is resolved.
Assignment FirstAssignment(const config::Config& config);

// How many workers may be in the job at a time, ranks from 0 on, once it has begun: more than
// cluster.workers where it goes on with those that come. Of a resolved config.
uint32_t MostWorkers(const config::Config& config);

// Whether the batch or the learning rate, and with them the bits, follow the number of workers,
// because a setting says so.
bool FollowsWorkers(const config::Config& config);

// Throws Error(kUsage) if there would be more chunks than a message can name.
std::vector<Chunk> CutChunks(const VariableLayout& layout, const config::Cluster& cluster);

// Whether server and workers of one host map the same weights and gradients. AUTO does where it
// can, which is always, but for old kernels.
bool SharesMemory(const config::Config& config);

}  // namespace muster
