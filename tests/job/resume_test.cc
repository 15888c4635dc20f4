// A server resumed from any step of a run ends with the weights of an uninterrupted one: for each
// optimizer, the average, clipping, skipped steps, 16 bits, and any number of workers.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <limits>

#include "common/base/error.h"
#include "common/config/update_settings.h"
#include "tests/job/run_dirs.h"
#include "tests/job/test_job.h"

namespace muster::testing {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kSteps = 9;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class ResumeJob : public RunDirs {
 protected:
  // Returns the weights' hash after this many steps.
  uint64_t Run(const std::string& settings, int64_t steps, uint32_t workers,
               const std::string& dir = "", const SliceGradient& gradient = Rough) {
    TestJob job(Config(settings, steps, workers, dir));
    (void)RunWorkers(job, {.gradient = gradient});
    return job.Finish().weights_hash;
  }
  static config::Config Config(const std::string& settings, int64_t steps, uint32_t workers,
                               const std::string& dir) {
    config::Config config = With(SmallConfig(workers, 3), settings);
    config.mutable_run()->set_steps(steps);
    if (!dir.empty()) config.mutable_run()->set_dir(dir);
    return config;
  }
};

constexpr const char* kClip = " clip_value: 20";

TEST_F(ResumeJob, FromEachStepWithEachOptimizer) {
  std::vector<std::string> types = OptimizerTypes();
  types.insert(types.end(), {"RMSPROP momentum: 0.5", "ADAM ema_decay: 0.9",
                             "MOMENTUM clip_norm: 3 ema_decay: 0.5"});
  for (const std::string& type : types) {
    const std::string settings = "optimizer { type: " + type + kClip + " }";
    const uint64_t whole = Run(settings, kSteps, 2);
    for (int64_t step = 1; step < kSteps; step += 3) {
      const std::string dir = NewRun();
      (void)Run(settings, step, 1, dir);
      EXPECT_EQ(Run(settings, kSteps, 3, dir), whole) << type << " from step " << step;
    }
  }
}

TEST_F(ResumeJob, InSixteenBits) {
  const std::string settings =
      "cluster { wire_dtype: BF16 } optimizer { type: ADAM ema_decay: 0.9 clip_value: 20 }";
  const uint64_t whole = Run(settings, kSteps, 2);
  const std::string dir = NewRun();
  (void)Run(settings, 4, 3, dir);
  EXPECT_EQ(Run(settings, kSteps, 1, dir), whole);
}

// Adam's count of steps then differs from the run's.
TEST_F(ResumeJob, AfterStepsThatWereSkipped) {
  const SliceGradient bad = [](int64_t step, int64_t slice, size_t i) {
    return (step == 2 || step == 3) && slice == 1 && i == 7 ? kNan : Rough(step, slice, i);
  };
  const std::string settings =
      "run { on_nonfinite: SKIP_STEP } optimizer { type: ADAM ema_decay: 0.9 clip_value: 20 }";
  const uint64_t whole = Run(settings, kSteps, 2, "", bad);
  for (const int64_t step : {2, 3, 4, 5}) {
    const std::string dir = NewRun();
    (void)Run(settings, step, 2, dir, bad);
    EXPECT_EQ(Run(settings, kSteps, 3, dir, bad), whole) << step;
  }
}

// Steps skipped before the resume count.
TEST_F(ResumeJob, SkippedStepsInARow) {
  const SliceGradient bad = [](int64_t step, int64_t slice, size_t i) {
    return step >= 2 ? kNan : Rough(step, slice, i);
  };
  const std::string settings =
      "run { on_nonfinite: SKIP_STEP max_skipped_steps: 3 } optimizer { clip_value: 20 }";
  const std::string dir = NewRun();
  (void)Run(settings, 4, 2, dir, bad);
  TestJob job(Config(settings, kSteps, 2, dir));
  EXPECT_ANY_THROW((void)RunWorkers(job, {.gradient = bad}));
  EXPECT_THAT(job.FinishError(), HasSubstr("3 steps skipped in a row"));
  EXPECT_THAT(ListCheckpoints(dir).front().step, 4) << "the failed step gets no checkpoint";
}

TEST_F(ResumeJob, WithOtherDataItIsRefused) {
  const std::string settings = "optimizer { clip_value: 20 }";
  const std::string dir = NewRun();
  (void)Run(settings, 4, 1, dir);
  TestJob job(Config(settings, kSteps, 1, dir));
  ClientOptions options = job.OptionsFor(0);
  options.hello.set_data_fingerprint(77);
  EXPECT_ANY_THROW(Client{std::move(options)});
  ExitCode code = ExitCode::kOk;
  EXPECT_THAT(job.FinishError(&code), HasSubstr("the training data have changed"));
  EXPECT_EQ(code, ExitCode::kUsage);
}

}  // namespace
}  // namespace muster::testing
