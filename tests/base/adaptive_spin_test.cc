// The policy of spinning before sleep, with the test's own clock.
#include "common/base/adaptive_spin.h"

#include <gtest/gtest.h>

namespace muster::testing {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

class Waits : public ::testing::Test {
 protected:
  // Does one wait. Returns whether it spun.
  bool Wait(AdaptiveSpin::Duration took) {
    const bool looks = spin_.Begin(now_);
    now_ += took;
    spin_.End(now_);
    return looks;
  }
  void Warm() {
    for (int i = 0; i < AdaptiveSpin::kShortWaits; ++i) EXPECT_FALSE(Wait(microseconds(60)));
  }
  // After a failed spin, returns how long waits do not spin.
  milliseconds Pause() {
    const auto began = now_;
    while (!Wait(microseconds(10))) continue;
    return std::chrono::duration_cast<milliseconds>(now_ - began);
  }

  AdaptiveSpin spin_;
  AdaptiveSpin::Clock::time_point now_{std::chrono::hours(1)};
};

TEST_F(Waits, LookAfterAFewShortOnes) {
  Warm();
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(Wait(microseconds(5)));
}

TEST_F(Waits, NeverLookWhereTheyAreLong) {
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(Wait(milliseconds(3)));
  // It does not spin if only some are long either: in training, a step waits for its first chunk,
  // and the others are there.
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(Wait(i % 3 == 0 ? milliseconds(3) : milliseconds(0)));
}

TEST_F(Waits, LookInVainEverMoreRarely) {
  Warm();
  ASSERT_TRUE(Wait(milliseconds(8)));  // the core was used by a computing thread
  milliseconds pause = AdaptiveSpin::kFirstPause;
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(Pause(), pause);
    EXPECT_TRUE(Wait(milliseconds(8)));
    pause = std::min(2 * pause, AdaptiveSpin::kLongestPause);
  }
  EXPECT_EQ(pause, AdaptiveSpin::kLongestPause);
}

// The other side slept. It is awake soon, and then both spin.
TEST_F(Waits, GoOnLookingAfterAFewInVainThatWereShort) {
  Warm();
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < AdaptiveSpin::kTolerated; ++i) EXPECT_TRUE(Wait(microseconds(150)));
    EXPECT_TRUE(Wait(microseconds(10)));
  }
  for (int i = 0; i < AdaptiveSpin::kTolerated + 1; ++i) EXPECT_TRUE(Wait(microseconds(150)));
  EXPECT_FALSE(Wait(microseconds(150)));  // it does not wake up
  EXPECT_FALSE(Wait(microseconds(150)));
}

TEST_F(Waits, ForgetThatWhenTheySucceed) {
  Warm();
  for (int i = 0; i < 12; ++i) {
    ASSERT_TRUE(Wait(milliseconds(8)));
    Pause();
  }
  for (int i = 0; i < 12 * AdaptiveSpin::kForgiven; ++i) ASSERT_TRUE(Wait(microseconds(10)));
  ASSERT_TRUE(Wait(milliseconds(8)));
  EXPECT_EQ(Pause(), AdaptiveSpin::kFirstPause);
}

TEST_F(Waits, AreBoundedByTheRealClock) {
  AdaptiveSpin spin;
  for (int i = 0; i < 10; ++i) {
    EXPECT_FALSE(spin.Spin([] { return false; }));
    spin.Slept();
  }
  EXPECT_TRUE(spin.Spin([] { return true; }));
}

}  // namespace
}  // namespace muster::testing
