#include "ps/step/step_losses.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

// A step of 6 samples in 3 slices.
class WeighedLosses : public ::testing::Test {
 protected:
  using Added = StepLosses::Added;

  WeighedLosses() { losses_.Begin(plan_, plan_.At(0)); }

  Added Add(int64_t slice, double loss, std::optional<double> weight) {
    return losses_.Add(0, slice, plan_.Slice(plan_.At(0), slice).size(), loss, 0, {},
                       {.learning_rate = {}, .weight = weight});
  }

  const StepPlan plan_{.train_samples = 6, .global_batch = 6, .total_steps = 1, .slices = 3};
  StepLosses losses_;
};

TEST_F(WeighedLosses, AreDividedByTheSumOfWeights) {
  EXPECT_EQ(Add(0, 8, 4), Added::kNew);
  EXPECT_EQ(Add(1, 0, 0), Added::kNew);
  EXPECT_EQ(Add(2, 1, 1), Added::kNew);
  EXPECT_EQ(losses_.Weight(), 5);
  EXPECT_EQ(losses_.Loss(), 9.0 / 5 * 6);  // shown per sample
}

TEST_F(WeighedLosses, MayAllWeighNothing) {
  for (const int64_t slice : {0, 1, 2}) EXPECT_EQ(Add(slice, 0, 0), Added::kNew);
  EXPECT_EQ(losses_.Weight(), 0);
  EXPECT_EQ(losses_.Loss(), 0);
}

TEST_F(WeighedLosses, AreAllOfOneKind) {
  EXPECT_EQ(Add(0, 8, 4), Added::kNew);
  EXPECT_EQ(Add(1, 8, std::nullopt), Added::kOtherWeight);
  EXPECT_EQ(Add(0, 8, 5), Added::kDiffers);
  EXPECT_EQ(Add(0, 8, 4), Added::kSame);
}

}  // namespace
}  // namespace muster
