// Evaluations that end a run or lower its learning rate. The server decides the same in a run that
// is resumed from any step.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "common/base/error.h"
#include "tests/job/run_dirs.h"
#include "tests/job/test_job.h"

namespace muster::testing {
namespace {

using ::testing::Each;

// Every weight falls by the learning rate in each step.
float Falling(int64_t, int64_t slice, size_t) { return slice == 0 ? 1.0f : 0.0f; }

// Improves at first, then stops, then improves a last time. Out of 40 samples.
int64_t Correct(int64_t version, int64_t) { return version <= 4 ? version : version == 12 ? 6 : 3; }

class PatienceJob : public RunDirs {
 protected:
  struct Result {
    ServerResult server;
    std::vector<float> weights;
  };
  // Evaluates every two steps, and at the end unless `settings` disable it.
  Result Run(const std::string& settings, int64_t steps, uint32_t workers,
             const std::string& dir = "", const SliceGradient& gradient = Rough) {
    config::Config config = SmallConfig(workers, 4);
    config.mutable_evaluation()->set_skip_final(false);
    config.mutable_evaluation()->set_every_steps(2);
    config.mutable_evaluation()->set_batch(20);
    config = With(std::move(config), settings);
    config.mutable_run()->set_steps(steps);
    if (!dir.empty()) config.mutable_run()->set_dir(dir);
    TestJob job(config);
    job.test_samples = 40;
    Result result;
    result.weights = RunWorkers(job, {.gradient = gradient, .correct = Correct});
    result.server = job.Finish();
    return result;
  }
};

const std::string kPlateau =
    "learning_rate { type: PLATEAU base: 1 factor: 0.5 plateau_patience: 2 } ";

// W(4) is the best. W(6) and W(8) are no better, so the rate is 0.5 from step 8. W(10) is no
// better, W(12) is. W(14) and W(16) are not, so the rate is 0.25 from step 16.
TEST_F(PatienceJob, TheRateFallsOnAPlateau) {
  const Result run = Run(kPlateau, 20, 2, "", Falling);
  EXPECT_EQ(run.server.steps, 20);
  // 8 + 8 / 2 + 4 / 4
  EXPECT_THAT(run.weights, Each(-13.0f));
}

TEST_F(PatienceJob, ARunThatGoesOnHasTheSameRate) {
  constexpr int64_t kSteps = 18;
  const std::string adam = kPlateau + "optimizer { type: ADAM ema_decay: 0.9 } ";
  const std::string average = adam + "evaluation { use_ema: true } ";
  // With skip_final, a run that ends where an evaluation is due has not had it.
  for (const std::string& settings :
       {kPlateau, average, adam + "evaluation { skip_final: true } "}) {
    const uint64_t whole = Run(settings, kSteps, 2).server.weights_hash;
    for (int64_t step = 3; step < kSteps; ++step) {
      const std::string dir = NewRun();
      (void)Run(settings, step, 1, dir);
      EXPECT_EQ(Run(settings, kSteps, 3, dir).server.weights_hash, whole)
          << settings << " from step " << step;
    }
  }
}

TEST_F(PatienceJob, ARunEndsWhenNothingGetsBetter) {
  const Result run = Run("evaluation { patience: 3 } ", 40, 2, "", Falling);
  EXPECT_EQ(run.server.steps, 10) << "W(6), W(8) and W(10) are no better than W(4)";
  EXPECT_THAT(run.weights, Each(-10.0f));
}

TEST_F(PatienceJob, ARunThatGoesOnEndsAtTheSameStep) {
  for (const std::string more : {"", "skip_final: true "}) {
    const std::string settings = "evaluation { patience: 3 " + more + "}";
    const Result whole = Run(settings, 40, 2);
    ASSERT_EQ(whole.server.steps, 10);
    for (int64_t step = 3; step < 10; ++step) {
      const std::string dir = NewRun();
      (void)Run(settings, step, 3, dir);
      const Result rest = Run(settings, 40, 1, dir);
      EXPECT_EQ(rest.server.steps, 10) << "from step " << step;
      EXPECT_EQ(rest.server.weights_hash, whole.server.weights_hash) << "from step " << step;
    }
  }
}

// It ends again immediately, even if extended. With more patience it equals a run that had it from
// the start.
TEST_F(PatienceJob, ARunThatStoppedEarlyGoesOnWithMorePatience) {
  const std::string dir = NewRun();
  const Result stopped = Run("evaluation { patience: 3 } ", 30, 2, dir);
  ASSERT_EQ(stopped.server.steps, 10);
  for (const int64_t steps : {30, 40}) {
    const Result again = Run("evaluation { patience: 3 } ", steps, 1, dir);
    EXPECT_EQ(again.server.steps, 10);
    EXPECT_EQ(again.server.weights_hash, stopped.server.weights_hash);
  }
  const Result patient = Run("evaluation { patience: 4 } ", 40, 2, dir);
  const Result whole = Run("evaluation { patience: 4 } ", 40, 2);
  EXPECT_EQ(patient.server.steps, 20) << "W(12) is the best";
  EXPECT_EQ(patient.server.weights_hash, whole.server.weights_hash);
  EXPECT_EQ(Run("", 40, 2, dir).server.steps, 40);
}

TEST_F(PatienceJob, ARunThatReachedItsAccuracyGoesOnWithAHigherOne) {
  const std::string dir = NewRun();
  EXPECT_EQ(Run("evaluation { stop_at_accuracy: 0.2 } ", 30, 2, dir).server.steps, 4);
  EXPECT_EQ(Run("evaluation { stop_at_accuracy: 0.2 } ", 40, 2, dir).server.steps, 4);
  EXPECT_EQ(Run("evaluation { stop_at_accuracy: 0.3 } ", 40, 2, dir).server.steps, 12);
}

}  // namespace
}  // namespace muster::testing
