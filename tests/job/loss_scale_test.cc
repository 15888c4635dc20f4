// worker.precision FP16: workers scale the loss as their orders say, and the server divides the
// gradient by it. Through a real server. lost_worker_test.cc has lost workers.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/checkpoint/list_checkpoints.h"
#include "tests/job/run_dirs.h"
#include "tests/job/test_job.h"

namespace muster::testing {
namespace loss_scale_test {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kAdam = "optimizer { type: ADAM ema_decay: 0.9 clip_value: 20 }";
constexpr const char* kFp16 = "worker { precision: FP16 }";

// A gradient that cannot be scaled by more than this in some steps.
float Limited(int64_t step, int64_t slice, size_t i) {
  const float largest = step == 2 ? 8 : step == 5 ? 24 : 0.5f;
  return slice == 1 && i == 7 ? largest : Rough(step, slice, i) / 8192;
}

class LossScaleJob : public RunDirs {
 protected:
  struct Outcome {
    uint64_t hash = 0;
    std::map<int64_t, float> scales;  // by step
  };

  static config::Config Config(const std::string& settings, int64_t steps, uint32_t workers,
                               const std::string& dir = "") {
    config::Config config = With(SmallConfig(workers, 4), settings);
    config.mutable_run()->set_steps(steps);
    if (!dir.empty()) config.mutable_run()->set_dir(dir);
    return config;
  }
  static WorkerBehaviour Worker(const SliceGradient& gradient, Outcome& outcome) {
    return {.gradient = gradient,
            .on_train =
                [&outcome, &mutex = mutex_](const Order& order) {
                  const std::lock_guard lock(mutex);
                  const auto [at, is_new] = outcome.scales.emplace(order.version, order.loss_scale);
                  EXPECT_EQ(at->second, order.loss_scale) << "step " << order.version;
                },
            .largest_half = true};
  }
  Outcome Run(const config::Config& config, const SliceGradient& gradient,
              const std::string& transport = "ipc") {
    Outcome outcome;
    TestJob job(config, transport);
    (void)RunWorkers(job, Worker(gradient, outcome));
    outcome.hash = job.Finish().weights_hash;
    return outcome;
  }
  std::vector<float> ScalesOf(const Outcome& outcome) {
    std::vector<float> scales;
    for (const auto& [step, scale] : outcome.scales) scales.push_back(scale);
    return scales;
  }

  static inline std::mutex mutex_;
};

// The scale is a power of two, so it changes no bits of gradients in range.
TEST_F(LossScaleJob, HasTheBitsOfNoScale) {
  const SliceGradient small = [](int64_t step, int64_t slice, size_t i) {
    return Rough(step, slice, i) / 8192;
  };
  for (const std::string optimizer :
       {kAdam, "optimizer { type: MOMENTUM clip_norm: 0.1 }", "optimizer { type: SGD }"}) {
    const Outcome scaled = Run(Config(optimizer + kFp16, 4, 2), small);
    EXPECT_THAT(ScalesOf(scaled), ElementsAre(65536, 65536, 65536, 65536));
    const Outcome plain = Run(Config(optimizer, 4, 2), small);
    EXPECT_THAT(ScalesOf(plain), ElementsAre(1, 1, 1, 1));
    EXPECT_EQ(scaled.hash, plain.hash) << optimizer;
  }
}

// A step whose scaled gradient overflows changes nothing, and the next one has half the scale.
TEST_F(LossScaleJob, FallsUntilTheGradientFits) {
  const SliceGradient late = [](int64_t step, int64_t slice, size_t i) {
    // Scaled by 65536 and 32768 it exceeds 65504.
    return step < 3 ? 2.0f : Rough(step - 3, slice, i) / 8192;
  };
  const SliceGradient gradient = [](int64_t step, int64_t slice, size_t i) {
    return step == 0 ? 2.0f : Rough(step - 1, slice, i) / 8192;
  };
  const Outcome fell = Run(Config(std::string(kAdam) + kFp16, 6, 2), late);
  EXPECT_THAT(ScalesOf(fell), ElementsAre(65536, 32768, 16384, 16384, 16384, 16384));
  EXPECT_EQ(fell.hash, Run(Config(kAdam, 4, 2), gradient).hash);
}

TEST_F(LossScaleJob, HasTheSameBitsOnAnyNumberOfWorkers) {
  const std::string settings = std::string(kAdam) + kFp16;
  const Outcome one = Run(Config(settings, 9, 1), Limited);
  EXPECT_THAT(ScalesOf(one),
              ElementsAre(65536, 65536, 65536, 32768, 32768, 32768, 16384, 16384, 16384));
  for (const uint32_t workers : {2, 4}) {
    for (const char* const transport : {"ipc", "local"}) {
      const Outcome several = Run(Config(settings, 9, workers), Limited, transport);
      EXPECT_EQ(several.hash, one.hash);
      EXPECT_EQ(several.scales, one.scales);
    }
  }
}

TEST_F(LossScaleJob, ResumesFromEachStep) {
  const std::string settings = std::string(kAdam) + kFp16;
  const Outcome whole = Run(Config(settings, 9, 2), Limited);
  for (int64_t step = 1; step < 9; ++step) {
    const std::string dir = NewRun();
    (void)Run(Config(settings, step, 1, dir), Limited);
    const Outcome rest = Run(Config(settings, 9, 4, dir), Limited);
    EXPECT_EQ(rest.hash, whole.hash) << "from step " << step;
    for (const auto& [at, scale] : rest.scales) EXPECT_EQ(scale, whole.scales.at(at)) << at;
    EXPECT_EQ(NewestState(dir).loss_scale(), 16384);
    EXPECT_EQ(NewestState(dir).loss_scale_good_steps(), 3);
  }
}

// 16 halvings lead to 1, one more below it.
TEST_F(LossScaleJob, ABadGradientEndsTheRunBelowOne) {
  const SliceGradient bad = [](int64_t, int64_t, size_t i) {
    return i == 307 ? std::numeric_limits<float>::infinity() : 0.0f;
  };
  TestJob job(Config(kFp16, 30, 2));
  Outcome outcome;
  EXPECT_ANY_THROW((void)RunWorkers(job, Worker(bad, outcome)));
  ExitCode code{};
  EXPECT_THAT(job.FinishError(&code),
              AllOf(HasSubstr("hidden/bias[3] is inf at step 17"), HasSubstr("rank "),
                    HasSubstr("the loss scale is only 0.5"), HasSubstr("run.on_nonfinite")));
  EXPECT_EQ(code, ExitCode::kNonfinite);
}

TEST_F(LossScaleJob, ABadLossIsAnErrorAsEver) {
  TestJob job(Config(kFp16, 3, 1));
  Outcome outcome;
  WorkerBehaviour behaviour = Worker(Limited, outcome);
  behaviour.loss = [](int64_t step, int64_t) { return step == 1 ? HUGE_VAL : 1.0; };
  EXPECT_ANY_THROW((void)RunWorkers(job, behaviour));
  EXPECT_THAT(job.FinishError(), HasSubstr("the loss of slice 0 is inf at step 1"));
}

// With SKIP_STEP a loss is skipped without effect on the scale, and below 1 the steps count.
TEST_F(LossScaleJob, WithSkipStepOnlyTheOthersCount) {
  const SliceGradient bad = [](int64_t, int64_t, size_t) { return HUGE_VALF; };
  TestJob job(
      Config(std::string(kFp16) + "run { on_nonfinite: SKIP_STEP max_skipped_steps: 2 }", 30, 2));
  Outcome outcome;
  WorkerBehaviour behaviour = Worker(bad, outcome);
  behaviour.loss = [](int64_t step, int64_t) { return step == 1 ? HUGE_VAL : 1.0; };
  EXPECT_ANY_THROW((void)RunWorkers(job, behaviour));
  EXPECT_THAT(job.FinishError(),
              AllOf(HasSubstr("2 steps skipped in a row"), HasSubstr("step 18")));
  EXPECT_EQ(outcome.scales.at(1), outcome.scales.at(2));
}

}  // namespace loss_scale_test
}  // namespace muster::testing
