// Default job sizes: the same number of slices for all numbers of workers that can share them
// evenly, and as many workers as the machine's cores allow.
#include "common/config/job_size.h"

#include <gtest/gtest.h>

#include <functional>
#include <utility>

#include "common/base/error.h"
#include "common/config/config.h"

namespace muster {
namespace {

config::Config Resolved(const std::function<void(config::Config&)>& say, int cores) {
  config::Config config;
  config.mutable_run()->set_global_batch(256);
  say(config);
  ResolveJobSize(config, cores);
  return config;
}

TEST(JobSize, ASliceKeepsSixteenSamples) {
  EXPECT_EQ(SlicesOfBatch(16777216), 8u);
  EXPECT_EQ(SlicesOfBatch(128), 8u);
  EXPECT_EQ(SlicesOfBatch(127), 4u);
  EXPECT_EQ(SlicesOfBatch(64), 4u);
  EXPECT_EQ(SlicesOfBatch(63), 2u);
  EXPECT_EQ(SlicesOfBatch(31), 1u);
  EXPECT_EQ(SlicesOfBatch(1), 1u);
}

// 1, 2, 4 and 8 workers give equal bits, because the number of slices depends on the batch, not on
// the workers.
TEST(JobSize, WorkersThatShareTheSlicesEvenlyHaveTheSame) {
  for (const int64_t batch : {128, 130, 256, 1000, 16777216}) {
    for (const uint32_t workers : {1u, 2u, 4u, 8u}) EXPECT_EQ(DefaultSlices(batch, workers), 8u);
  }
  for (const uint32_t workers : {1u, 2u, 4u}) EXPECT_EQ(DefaultSlices(64, workers), 4u);
  for (const uint32_t workers : {1u, 2u}) EXPECT_EQ(DefaultSlices(32, workers), 2u);
  // Other numbers of workers get one slice each.
  for (const uint32_t workers : {3u, 5u, 6u, 7u, 9u, 16u, 64u}) {
    EXPECT_EQ(DefaultSlices(1024, workers), workers);
  }
  EXPECT_EQ(DefaultSlices(64, 8), 8u);
  EXPECT_EQ(DefaultSlices(4, 2), 2u);
}

// The slices of a program do not depend on the workers. It may say its batch later.
TEST(JobSize, AProgramHasFourSlices) {
  const auto resolved = [](uint32_t workers, int cores) {
    return Resolved(
        [&](config::Config& config) {
          config.mutable_worker()->add_program("train");
          if (cores == 64) config.mutable_run()->clear_batch();
          if (workers > 0) config.mutable_cluster()->set_workers(workers);
        },
        cores);
  };
  for (const uint32_t workers : {1u, 2u, 3u, 4u}) {
    EXPECT_EQ(resolved(workers, 64).run().slices(), 4u) << workers;
  }
  EXPECT_EQ(resolved(0, 64).cluster().workers(), 4u);
  EXPECT_EQ(resolved(0, 3).cluster().workers(), 2u);
  EXPECT_THROW(resolved(5, 64), Error);
}

// GPUs need large slices: one or two per worker, so that similar numbers of workers agree.
TEST(JobSize, WorkersOnGpusHaveOneSliceOrTwo) {
  for (const int64_t batch : {4096, 16777216}) {
    for (const auto& [workers, slices] : {std::pair{1u, 2u},
                                          {2u, 2u},
                                          {3u, 3u},
                                          {4u, 8u},
                                          {5u, 5u},
                                          {6u, 6u},
                                          {8u, 8u},
                                          {12u, 12u},
                                          {16u, 32u},
                                          {32u, 32u},
                                          {48u, 48u}}) {
      EXPECT_EQ(DefaultSlicesOfCards(batch, workers), slices) << workers;
    }
  }
  for (uint32_t workers = 1; workers <= 1024; ++workers) {
    const uint32_t slices = DefaultSlicesOfCards(16777216, workers);
    EXPECT_TRUE(slices == workers || slices == 2 * workers) << workers;
  }
  // 64 samples per slice.
  EXPECT_EQ(DefaultSlicesOfCards(128, 1), 2u);
  EXPECT_EQ(DefaultSlicesOfCards(127, 1), 1u);
  EXPECT_EQ(DefaultSlicesOfCards(512, 4), 8u);
  EXPECT_EQ(DefaultSlicesOfCards(511, 4), 4u);
  EXPECT_EQ(DefaultSlicesOfCards(64, 8), 8u);
  const config::Config config = Resolved(
      [](config::Config& c) {
        c.mutable_worker()->set_backend(config::Worker::CUDA);
        c.mutable_cluster()->set_workers(2);
      },
      4);
  EXPECT_EQ(config.run().slices(), 2u);
}

TEST(JobSize, AsManyWorkersAsCoresThatShareTheSlicesEvenly) {
  const auto workers = [](int cores, int64_t batch) {
    return Resolved([&](config::Config& c) { c.mutable_run()->set_global_batch(batch); }, cores)
        .cluster()
        .workers();
  };
  for (const auto& [cores, expected] :
       {std::pair{1, 1u}, {2, 2u}, {3, 2u}, {4, 4u}, {6, 4u}, {8, 8u}, {12, 8u}, {64, 8u}}) {
    EXPECT_EQ(workers(cores, 256), expected) << cores;
  }
  EXPECT_EQ(workers(64, 64), 4u);
  EXPECT_EQ(workers(64, 16), 1u);
  EXPECT_EQ(workers(0, 256), 1u);
}

TEST(JobSize, AnyMachineHasTheSlicesOfAnyOther) {
  for (const int64_t batch : {1, 16, 48, 64, 128, 250, 4096}) {
    const auto on = [&](int cores) {
      return Resolved([&](config::Config& c) { c.mutable_run()->set_global_batch(batch); }, cores)
          .run()
          .slices();
    };
    for (const int cores : {2, 3, 4, 6, 8, 16, 64, 1000}) EXPECT_EQ(on(cores), on(1)) << batch;
  }
}

TEST(JobSize, WhatTheConfigSaysStays) {
  const config::Config threads =
      Resolved([](config::Config& c) { c.mutable_worker()->set_threads(4); }, 8);
  EXPECT_EQ(threads.cluster().workers(), 2u);
  EXPECT_EQ(threads.run().slices(), 8u);
  const config::Config all =
      Resolved([](config::Config& c) { c.mutable_worker()->set_threads(0); }, 12);
  EXPECT_EQ(all.cluster().workers(), 8u);
  EXPECT_EQ(all.worker().threads(), 1u);
  const config::Config slices =
      Resolved([](config::Config& c) { c.mutable_run()->set_slices(64); }, 16);
  EXPECT_EQ(slices.cluster().workers(), 16u);
  EXPECT_EQ(slices.run().slices(), 64u);
  const config::Config seven =
      Resolved([](config::Config& c) { c.mutable_run()->set_slices(7); }, 4);
  EXPECT_EQ(seven.cluster().workers(), 1u);
  const config::Config workers =
      Resolved([](config::Config& c) { c.mutable_cluster()->set_workers(3); }, 16);
  EXPECT_EQ(workers.cluster().workers(), 3u);
  EXPECT_EQ(workers.run().slices(), 3u);
  EXPECT_EQ(workers.worker().threads(), 1u);
}

// Beside GPUs most cores are free for batches and updates.
TEST(JobSize, ThreadsFollowTheCoresOnGpus) {
  const auto threads = [](config::Worker::Backend backend, uint32_t workers, int cores) {
    config::Config config;
    config.mutable_run()->set_global_batch(256);
    config.mutable_worker()->set_backend(backend);
    config.mutable_cluster()->set_workers(workers);
    ResolveForMachine(config, cores);
    return std::pair(config.data().prefetch_threads(), config.server().threads());
  };
  using Threads = std::pair<uint32_t, uint32_t>;
  EXPECT_EQ(threads(config::Worker::CPU, 8, 64), Threads(1, 4));
  EXPECT_EQ(threads(config::Worker::CUDA, 1, 2), Threads(2, 2));
  EXPECT_EQ(threads(config::Worker::CUDA, 1, 16), Threads(14, 4));
  EXPECT_EQ(threads(config::Worker::CUDA, 8, 64), Threads(6, 16));
  EXPECT_EQ(threads(config::Worker::CUDA, 2, 128), Threads(16, 6));
  EXPECT_EQ(threads(config::Worker::CUDA, 128, 2048), Threads(14, 16));  // of 16 hosts
}

// The batch follows the workers, so their number is not limited, and FollowsWorkers reports it.
TEST(JobSize, ABatchOfEachWorkersOwnGrowsWithThem) {
  const auto each = [](int64_t samples, int cores) {
    return Resolved([&](config::Config& c) { c.mutable_run()->set_batch_per_worker(samples); },
                    cores);
  };
  EXPECT_EQ(each(8, 4).cluster().workers(), 4u);
  EXPECT_EQ(each(8, 4).run().slices(), 4u);
  EXPECT_EQ(each(64, 2).run().slices(), 8u);
  EXPECT_TRUE(FollowsWorkers(each(64, 2)));
  EXPECT_FALSE(FollowsWorkers(Resolved([](config::Config&) {}, 2)));
  EXPECT_TRUE(FollowsWorkers(Resolved(
      [](config::Config& c) { c.mutable_learning_rate()->set_scaling(config::LearningRate::SQRT); },
      2)));
}

}  // namespace
}  // namespace muster
