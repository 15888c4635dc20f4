// When a member is late, on a clock that the test moves.
#include <gtest/gtest.h>

#include "tests/protocol/scripted_clock.h"
#include "tests/ps/hand_coordinator.h"

namespace muster::testing {
namespace {

using std::chrono::milliseconds;

const std::vector<std::vector<TreeNode>> kHalves{{{1, 0}}, {{1, 1}}};

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
      job_.WholeStep(kHalves);
    }
  }
  // Rank 0 does its part of the next step within this time.
  void FirstPartAfter(milliseconds time) {
    clock_.Advance(time);
    const auto mine = job_.Train(0, kHalves[0]).at(0);
    job_.Losses(0, mine);
    job_.PushAll(0, mine);
  }
  bool LateAfter(milliseconds time) {
    clock_.Advance(time);
    job_.coordinator().CheckDeadlines(std::chrono::steady_clock::now());
    job_.Settle();
    return job_.Redo(0).has_value();
  }

  ScriptedClock clock_;
  HandCoordinator job_{Config()};
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

// It is no straggler who takes as long as the other one does: this step is longer than those
// before.
TEST_F(Stragglers, AreNotLateInAStepThatIsLongForAll) {
  StepsOf(milliseconds(10));
  FirstPartAfter(milliseconds(5000));
  EXPECT_FALSE(LateAfter(milliseconds(4990)));
  EXPECT_TRUE(LateAfter(milliseconds(20)));
}

// The loop sleeps no longer than that.
TEST_F(Stragglers, AreLookedForWhenTheyAreLate) {
  StepsOf(milliseconds(10));
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(job_.coordinator().LateAt() - begin, milliseconds(1000));
  FirstPartAfter(milliseconds(700));
  EXPECT_EQ(job_.coordinator().LateAt() - begin, milliseconds(1400));
}

}  // namespace
}  // namespace muster::testing
