// The limits of counting: the largest possible job, and the next one.
#include "common/plan/count_limits.h"

#include <gmock/gmock-matchers.h>

namespace muster {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kMost = StepPlan::kMostSamples;

std::string Trouble(StepPlan plan, int64_t tests = 0, int64_t batch = 250) {
  return CountTrouble(plan, tests, batch);
}

TEST(CountLimits, SetsAndBatches) {
  const StepPlan fits{
      .train_samples = kMost, .global_batch = kMost, .total_steps = 1000, .slices = 8};
  EXPECT_EQ(Trouble(fits), "");
  StepPlan plan = fits;
  ++plan.train_samples;
  EXPECT_THAT(Trouble(plan), AllOf(HasSubstr("8,589,934,593 training samples"),
                                   HasSubstr("at most 8,589,934,592 samples")));
  plan = fits;
  ++plan.global_batch;
  EXPECT_THAT(Trouble(plan), HasSubstr("a batch of 8,589,934,593"));
}

TEST(CountLimits, TheSamplesOfAllSteps) {
  // 2^62 samples are 2^29 epochs of 2^33.
  StepPlan plan{.train_samples = kMost,
                .global_batch = kMost,
                .total_steps = (int64_t{1} << 29) - 1,
                .slices = 8};
  EXPECT_EQ(Trouble(plan), "");
  EXPECT_GT(plan.At(plan.total_steps).samples_before, 0);
  ++plan.total_steps;
  EXPECT_THAT(Trouble(plan), AllOf(HasSubstr("536,870,912 steps"), HasSubstr("run.steps")));
}

TEST(CountLimits, AnEpochHasABatch) {
  StepPlan plan{
      .train_samples = 64, .global_batch = 64, .total_steps = 1, .slices = 1, .drop_last = true};
  EXPECT_EQ(Trouble(plan), "");
  --plan.train_samples;
  EXPECT_THAT(Trouble(plan), AllOf(HasSubstr("every epoch would be empty: a batch has 64 samples"),
                                   HasSubstr("the training set 63")));
}

TEST(CountLimits, TheBlocksOfATestSetAndTheBatchThatHelps) {
  const StepPlan plan{.train_samples = 100, .global_batch = 10, .total_steps = 10, .slices = 2};
  EXPECT_EQ(Trouble(plan, 250 * kMostTestBlocks), "");
  EXPECT_THAT(Trouble(plan, 250 * kMostTestBlocks + 1),
              AllOf(HasSubstr("262,144,001 test samples"), HasSubstr("at most 1,048,576 blocks"),
                    HasSubstr("set evaluation.batch to 251 or more")));
  EXPECT_EQ(Trouble(plan, 250 * kMostTestBlocks + 1, 251), "");
  // Every possible set fits with some valid batch size.
  EXPECT_EQ(Trouble(plan, kMost, 8192), "");
}

}  // namespace
}  // namespace muster
