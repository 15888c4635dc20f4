// When a member counts as slow, with a fake clock.
#include <gtest/gtest.h>

#include "tests/protocol/scripted_clock.h"
#include "tests/ps/hand_run.h"

namespace muster::testing {
namespace {

using std::chrono::milliseconds;

class Stragglers : public ::testing::Test {
 protected:
  static config::Config Config() {
    config::Config config = SmallConfig(2, 4);
    config.mutable_cluster()->set_on_lost_worker(config::Cluster::REPLACE);
    config.mutable_run()->set_steps(5);
    return config;
  }
  void StepsOf(milliseconds time) {
    for (int step = 0; step < 3; ++step) {
      clock_.Advance(time);
      job_.WholeStep();
    }
  }
  // Lets rank 0 complete its part of the next step within this time.
  void FirstPartAfter(milliseconds time) {
    clock_.Advance(time);
    const auto mine = job_.Train(0).at(0);
    job_.Losses(0, mine);
    job_.PushAll(0, mine);
  }
  bool LateAfter(milliseconds time) {
    clock_.Advance(time);
    job_.run().CheckTime(HandRun::Now());
    job_.Settle();
    return !job_.Train(0, /*urgent=*/true).empty();
  }

  ScriptedClock clock_;
  HandRun job_{Config()};
};

TEST_F(Stragglers, AreLateAfterASecondOfShortSteps) {
  StepsOf(milliseconds(10));
  FirstPartAfter(milliseconds(10));
  EXPECT_FALSE(LateAfter(milliseconds(980)));
  EXPECT_TRUE(LateAfter(milliseconds(20)));
}

TEST_F(Stragglers, AreLateAfterTwiceTheUsualTime) {
  StepsOf(milliseconds(3000));
  FirstPartAfter(milliseconds(2000));
  EXPECT_FALSE(LateAfter(milliseconds(3990)));
  EXPECT_TRUE(LateAfter(milliseconds(20)));
}

// A worker as slow as the other one is no straggler: this step is longer than earlier ones.
TEST_F(Stragglers, AreNotLateInAStepThatIsLongForAll) {
  StepsOf(milliseconds(10));
  FirstPartAfter(milliseconds(5000));
  EXPECT_FALSE(LateAfter(milliseconds(4990)));
  EXPECT_TRUE(LateAfter(milliseconds(20)));
}

// Otherwise, if all work became slower, both would be reset in turn forever.
TEST_F(Stragglers, HaveTwiceTheTimeAfterEachReset) {
  StepsOf(milliseconds(10));
  FirstPartAfter(milliseconds(10));
  EXPECT_TRUE(LateAfter(milliseconds(1010)));
  EXPECT_TRUE(job_.Next(1, [](const auto& m) { return m.has_reset(); }));
  job_.Ready(1);
  job_.Settle();
  EXPECT_TRUE(job_.Train(1, /*urgent=*/true).empty()) << "nothing is unassigned";
  EXPECT_EQ(*job_.run().LateBefore(Run::Time::max()) - std::chrono::steady_clock::now(),
            milliseconds(2000));
}

// The loop sleeps no longer than that.
TEST_F(Stragglers, AreLookedForWhenTheyAreLate) {
  StepsOf(milliseconds(10));
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(*job_.run().LateBefore(Run::Time::max()) - begin, milliseconds(1000));
  EXPECT_FALSE(job_.run().LateBefore(begin + milliseconds(1000)));
  EXPECT_TRUE(job_.run().LateBefore(begin + milliseconds(1001)));
  FirstPartAfter(milliseconds(700));
  EXPECT_EQ(*job_.run().LateBefore(Run::Time::max()) - begin, milliseconds(1400));
  EXPECT_FALSE(job_.run().LateBefore(begin + milliseconds(1400)));
}

}  // namespace
}  // namespace muster::testing
