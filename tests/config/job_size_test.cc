// Default job sizes: slices that follow the batch alone, and as many workers as the machine's cores
// allow and the slices can use.
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

TEST(JobSize, ASliceKeepsEightSamplesOnGpusSixtyFour) {
  for (const auto& [per_slice, cards] : {std::pair{8, false}, {64, true}}) {
    EXPECT_EQ(SlicesOfBatch(16777216, cards), 8u);
    for (const int64_t slices : {8, 4, 2}) {
      EXPECT_EQ(SlicesOfBatch(slices * per_slice, cards), slices);
      EXPECT_EQ(SlicesOfBatch(slices * per_slice - 1, cards), slices / 2);
    }
    EXPECT_EQ(SlicesOfBatch(1, cards), 1u);
  }
}

// Any number of workers gives equal bits, because the slices depend on the batch alone.
TEST(JobSize, WorkersDoNotChangeTheSlices) {
  for (const auto backend : {config::Worker::CPU, config::Worker::CUDA}) {
    for (const uint32_t workers : {1u, 2u, 3u, 5u, 8u, 9u}) {
      const auto resolve = [&] {
        return Resolved(
            [&](config::Config& config) {
              config.mutable_run()->set_global_batch(512);
              config.mutable_worker()->set_backend(backend);
              config.mutable_cluster()->set_workers(workers);
            },
            4);
      };
      if (workers > 8) {
        EXPECT_THROW(resolve(), Error);
      } else {
        EXPECT_EQ(resolve().run().slices(), 8u) << workers;
      }
    }
  }
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

TEST(JobSize, AsManyWorkersAsMakeTheLargestShareSmaller) {
  const auto workers = [](int cores, int64_t batch) {
    return Resolved([&](config::Config& c) { c.mutable_run()->set_global_batch(batch); }, cores)
        .cluster()
        .workers();
  };
  for (const auto& [cores, expected] :
       {std::pair{1, 1u}, {2, 2u}, {3, 3u}, {4, 4u}, {6, 4u}, {8, 8u}, {12, 8u}, {64, 8u}}) {
    EXPECT_EQ(workers(cores, 256), expected) << cores;
  }
  EXPECT_EQ(workers(64, 64), 8u);
  EXPECT_EQ(workers(64, 16), 2u);
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
  EXPECT_EQ(seven.cluster().workers(), 4u);
  const config::Config workers =
      Resolved([](config::Config& c) { c.mutable_cluster()->set_workers(3); }, 16);
  EXPECT_EQ(workers.cluster().workers(), 3u);
  EXPECT_EQ(workers.run().slices(), 8u);
  EXPECT_EQ(workers.worker().threads(), 1u);
}

// Beside GPUs most cores are free for batches and updates.
TEST(JobSize, ThreadsFollowTheCoresOnGpus) {
  const auto threads = [](config::Worker::Backend backend, uint32_t workers, int cores) {
    config::Config config;
    config.mutable_run()->set_global_batch(256);
    config.mutable_worker()->set_backend(backend);
    config.mutable_cluster()->set_workers(workers);
    config.mutable_run()->set_slices(workers);
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
