// If steps take a second, workers in shared memory push slice by slice. The work that a lost worker
// had finished is not repeated, and the bits are the same.
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <thread>

#include "common/base/error.h"
#include "tests/job/hardy_worker.h"

namespace muster::testing {
namespace {

constexpr int64_t kSlices = 8, kLostStep = 3;

config::Config Config() {
  config::Config config = SmallConfig(2, kSlices);
  config.mutable_run()->set_steps(kLostStep + 2);
  config.mutable_cluster()->set_on_lost_worker(config::Cluster::CONTINUE);
  return config;
}

struct Trained {
  uint64_t weights_hash = 0;
  int redone = 0;  // reassigned parts of the step with the fault
};

// Rank 1 ends in the middle of a step after it has pushed this many slices and half of another.
Trained Train(std::chrono::milliseconds slice, int pushed) {
  TestJob job(Config(), "local");
  std::atomic<int> redone = 0, pushes = 0;
  std::mutex mutex;
  std::string errors;
  std::vector<std::jthread> workers;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    workers.emplace_back([&, rank] {
      HardyWorker worker(job, rank, [&, rank](Point point, int64_t step, Client&) {
        if (step != kLostStep) return;
        if (point == Point::kTakenOver) ++redone;
        if (rank == 1 && point == Point::kHalfPushed && pushes++ == pushed) throw Dies();
      });
      worker.TakesForASlice(slice);
      try {
        (void)worker.Run();
      } catch (const Error& error) {
        const std::lock_guard lock(mutex);
        errors += error.what();
      }
    });
  }
  const uint64_t hash = job.Finish().weights_hash;
  workers.clear();
  EXPECT_EQ(errors, "");
  return {hash, redone};
}

TEST(LongSteps, OnlyWhatWasNotDoneIsComputedAgain) {
  const Trained undisturbed = Train(std::chrono::milliseconds(0), 100);
  EXPECT_EQ(undisturbed.redone, 0);
  // Half a batch takes more than a second.
  const Trained disturbed = Train(std::chrono::milliseconds(260), 2);
  EXPECT_EQ(disturbed.redone, 2);
  EXPECT_EQ(disturbed.weights_hash, undisturbed.weights_hash);
}

}  // namespace
}  // namespace muster::testing
