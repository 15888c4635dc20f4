// When a wait looks before it sleeps: the policy, on made-up durations.
#include "common/adaptive_spin.h"

#include <gtest/gtest.h>

namespace muster::testing {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// One wait; whether it looked.
bool Wait(AdaptiveSpin& spin, AdaptiveSpin::Duration took) {
  const bool looks = spin.Begin();
  spin.Learn(took);
  return looks;
}

void Warm(AdaptiveSpin& spin) {
  for (int i = 0; i < AdaptiveSpin::kShortWaits; ++i) EXPECT_FALSE(Wait(spin, microseconds(60)));
}

TEST(AdaptiveSpin, LooksAfterAFewShortWaits) {
  AdaptiveSpin spin;
  Warm(spin);
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(Wait(spin, microseconds(5)));
}

TEST(AdaptiveSpin, NeverLooksWhereWaitsAreLong) {
  AdaptiveSpin spin;
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(Wait(spin, milliseconds(3)));
  // Not even where every third is short: a training's first chunk is waited for, others are there.
  for (int i = 0; i < 1000; ++i)
    EXPECT_FALSE(Wait(spin, i % 3 == 0 ? milliseconds(3) : milliseconds(0)));
}

int WaitsWithoutLook(AdaptiveSpin& spin) {
  int waits = 0;
  while (!Wait(spin, microseconds(10))) ++waits;
  return waits;
}

TEST(AdaptiveSpin, LooksInVainBecomeRare) {
  AdaptiveSpin spin;
  Warm(spin);
  ASSERT_TRUE(Wait(spin, milliseconds(8)));  // the core went to somebody who computes
  int pause = AdaptiveSpin::kFirstPause;
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(WaitsWithoutLook(spin), pause);
    EXPECT_TRUE(Wait(spin, milliseconds(8)));
    pause = std::min(2 * pause, AdaptiveSpin::kLongestPause);
  }
  EXPECT_EQ(pause, AdaptiveSpin::kLongestPause);
}

TEST(AdaptiveSpin, LooksThatSucceedAreForgiving) {
  AdaptiveSpin spin;
  Warm(spin);
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(Wait(spin, milliseconds(8)));
    WaitsWithoutLook(spin);
  }
  for (int i = 0; i < 10 * AdaptiveSpin::kForgiven; ++i) ASSERT_TRUE(Wait(spin, microseconds(10)));
  ASSERT_TRUE(Wait(spin, milliseconds(8)));
  EXPECT_EQ(WaitsWithoutLook(spin), AdaptiveSpin::kFirstPause);
}

TEST(AdaptiveSpin, ALookEnds) {
  AdaptiveSpin spin;
  Warm(spin);
  EXPECT_FALSE(spin.Spin([] { return false; }));
  spin.Slept();
  EXPECT_TRUE(spin.Spin([] { return true; }));
}

}  // namespace
}  // namespace muster::testing
