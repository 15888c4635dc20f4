#include "common/config/job_size.h"

#include <algorithm>

#include "common/base/error.h"
#include "common/config/config.h"
#include "proto/config.pb.h"

namespace muster {
namespace {

constexpr uint32_t kMostSlices = 8;
constexpr uint32_t kSlicesOfProgram = 4;
constexpr uint32_t kMostWorkers = 1024;  // as for cluster.workers

// Over sockets, chunks of 1 MiB stay in the cache between the kernel's copies: 100 MiB over IPC
// take a tenth less time than with 4 MiB. In shared memory there are no copies, and fewer chunks
// are faster.
int64_t ChunkBytes(const VariableLayout& layout, const config::Cluster& cluster) {
  if (cluster.chunk_bytes() > 0) return cluster.chunk_bytes();
  if (!SharesMemory(cluster)) return kSocketChunk;
  const auto arena_bytes = static_cast<int64_t>(layout.arena_floats() * sizeof(float));
  return std::clamp<int64_t>(arena_bytes / 24, 1 << 20, 4 << 20);
}

}  // namespace

uint32_t SlicesOfBatch(int64_t global_batch, bool cards) {
  const int64_t least = cards ? kLeastCardSamples : kLeastSliceSamples;
  uint32_t slices = kMostSlices;
  while (slices > 1 && global_batch < least * slices) slices /= 2;
  return slices;
}

uint32_t DefaultWorkers(uint32_t slices, int cores, uint32_t threads) {
  const uint32_t room = static_cast<uint32_t>(std::max(1, cores)) / std::max(1u, threads);
  const uint32_t most = std::clamp(room, 1u, std::min(slices, kMostWorkers));
  const uint32_t share = (slices + most - 1) / most;
  return (slices + share - 1) / share;
}

void ResolveJobSize(config::Config& config, int cores) {
  config::Run& run = *config.mutable_run();
  config::Cluster& cluster = *config.mutable_cluster();
  const bool cards = config.worker().backend() == config::Worker::CUDA;
  // The bits must not depend on the workers. A program may say its batch later.
  const bool fixed = !run.has_slices() && (run.has_global_batch() || HasProgram(config));
  if (fixed) {
    run.set_slices(HasProgram(config) ? kSlicesOfProgram
                                      : SlicesOfBatch(run.global_batch(), cards));
  }
  if (!cluster.has_workers()) {
    // With batch_per_worker, the batch grows with the number of workers and does not limit it.
    const uint32_t slices = run.has_slices() ? run.slices() : kMostSlices;
    cluster.set_workers(DefaultWorkers(slices, cores, config.worker().threads()));
  }
  const uint32_t workers = cluster.workers();
  if (fixed && workers > run.slices()) {
    const bool too_small = !HasProgram(config) && run.global_batch() < workers;
    throw Error(ExitCode::kUsage,
                "{} workers: expected at most {}, the slices of a batch{}, because workers do not "
                "share slices; {}",
                workers, run.slices(),
                HasProgram(config) ? "" : fmt::format(" of {}", run.global_batch()),
                too_small ? "choose a larger batch"
                          : fmt::format("--slices {} changes their number, and the bits", workers));
  }
  if (!run.has_slices()) {  // batch_per_worker
    const uint32_t slices = SlicesOfBatch(ResolveBatch(config).global_batch, cards);
    run.set_slices(slices % workers == 0 ? slices : workers);
  }
  if (config.worker().threads() == 0) {
    config.mutable_worker()->set_threads(std::max(1u, static_cast<uint32_t>(cores) / workers));
  }
}

BatchSizes ResolveBatch(const config::Config& config) {
  const int64_t workers = config.cluster().workers();
  if (config.run().has_global_batch()) {
    const int64_t global = config.run().global_batch();
    return {global, static_cast<double>(global) / static_cast<double>(workers)};
  }
  const int64_t each = config.run().batch_per_worker();
  return {each * workers, static_cast<double>(each)};
}

StepPlan PlanSteps(const config::Config& config, int64_t train_samples) {
  StepPlan plan{.train_samples = train_samples,
                .global_batch = ResolveBatch(config).global_batch,
                .slices = config.run().slices(),
                .drop_last = config.run().drop_last()};
  plan.total_steps = config.run().has_steps() ? config.run().steps()
                                              : config.run().epochs() * plan.StepsPerEpoch();
  return plan;
}

Assignment FirstAssignment(const config::Config& config) {
  return AssignEvenly(config.run().slices(), config.cluster().workers());
}

bool FollowsWorkers(const config::Config& config) {
  return config.run().has_batch_per_worker() ||
         config.learning_rate().scaling() != config::LearningRate::NONE;
}

uint32_t MostWorkers(const config::Config& config) {
  const config::Cluster& cluster = config.cluster();
  if (cluster.on_lost_worker() == config::Cluster::ABORT) return cluster.workers();
  const uint32_t most = cluster.has_max_workers() ? cluster.max_workers() : config.run().slices();
  return std::max(most, cluster.workers());
}

std::vector<Chunk> CutChunks(const VariableLayout& layout, const config::Cluster& cluster) {
  return CutChunks(layout, static_cast<size_t>(ChunkBytes(layout, cluster)));
}

bool SharesMemory(const config::Cluster& cluster) {
  return cluster.wire_dtype() == config::Cluster::FP32 &&
         (cluster.transport() == config::Cluster::AUTO ||
          cluster.transport() == config::Cluster::LOCAL);
}

}  // namespace muster
