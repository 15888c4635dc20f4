// The loss scale of worker.precision FP16.
#include "ps/update/loss_scale.h"

#include <gtest/gtest.h>

namespace muster {
namespace loss_scale_test {

TEST(LossScale, IsHalvedAndDoubled) {
  LossScale scale(true, 3);
  EXPECT_EQ(scale.value(), 65536);
  EXPECT_FALSE(scale.Count(true));
  EXPECT_FALSE(scale.Count(true));
  EXPECT_EQ(scale.good_steps(), 2);
  EXPECT_TRUE(scale.Count(false));  // interrupts the good steps
  EXPECT_EQ(scale.value(), 32768);
  EXPECT_EQ(scale.good_steps(), 0);
  EXPECT_FALSE(scale.Count(true));
  EXPECT_FALSE(scale.Count(true));
  EXPECT_TRUE(scale.Count(true));
  EXPECT_EQ(scale.value(), 65536);
  EXPECT_EQ(scale.good_steps(), 0);
}

TEST(LossScale, DoublesAfterTwoThousandGoodSteps) {
  LossScale scale(true);
  for (int step = 1; step < 2000; ++step) EXPECT_FALSE(scale.Count(true));
  EXPECT_TRUE(scale.Count(true));
  EXPECT_EQ(scale.value(), 131072);
}

TEST(LossScale, HasLimits) {
  LossScale scale(true, 1);
  for (int halved = 0; halved < 17; ++halved) {
    EXPECT_TRUE(scale.CanFall());
    EXPECT_TRUE(scale.Count(false));
  }
  EXPECT_EQ(scale.value(), 0.5);
  EXPECT_FALSE(scale.CanFall());
  EXPECT_FALSE(scale.Count(false));
  for (int step = 0; step < 40; ++step) (void)scale.Count(true);
  EXPECT_EQ(scale.value(), LossScale::kMost);
  EXPECT_FALSE(scale.Count(true));
}

TEST(LossScale, GoesOnWhereItWas) {
  LossScale whole(true, 5), resumed(true, 5);
  for (int step = 0; step < 20; ++step) {
    (void)whole.Count(step % 7 != 3);
    resumed.Restore(whole.value(), whole.good_steps());
    LossScale next(true, 5);
    next.Restore(resumed.value(), resumed.good_steps());
    EXPECT_EQ(next.value(), whole.value());
    EXPECT_EQ(next.good_steps(), whole.good_steps());
  }
}

TEST(LossScale, IsOneIfItIsOff) {
  LossScale scale;
  scale.Restore(64, 3);
  EXPECT_FALSE(scale.Count(false));
  EXPECT_FALSE(scale.CanFall());
  EXPECT_EQ(scale.value(), 1);
}

}  // namespace loss_scale_test
}  // namespace muster
