// Slow workers are reset, and others get their work. Some of them hang.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <chrono>

#include "tests/protocol/scripted_clock.h"
#include "tests/ps/hand_run.h"

namespace muster::testing {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

class SlowWorkers : public ::testing::Test {
 protected:
  // One slice for each worker.
  static config::Config Config() {
    config::Config config = SmallConfig(4, 4);
    config.mutable_run()->set_steps(3);
    config.mutable_cluster()->set_on_lost_worker(config::Cluster::REPLACE);
    return config;
  }
  // Slice 1 of step 1 is too slow for rank 1, then for ranks 0 and 2. All are reset.
  void ResetThree() {
    job_.WholeStep();
    for (const uint32_t rank : {0, 2, 3}) {
      const HandRun::Task task = job_.Train(rank).at(0);
      job_.Losses(rank, task);
      job_.PushAll(rank, task);
    }
    for (const uint32_t next : {0, 2, 3}) {
      AdvanceRealTime(seconds(10));
      job_.run().CheckTime(HandRun::Now());
      job_.Settle();
      last_ = job_.Train(next, /*urgent=*/true);
      ASSERT_EQ(last_.size(), 1u) << next;
      ASSERT_EQ(last_[0].node, (TreeNode{0, 1}));
    }
  }
  void LoseThree() {
    for (const uint32_t rank : {1, 0, 2}) {
      job_.run().OnLost(rank, ExitCode::kPeerFailed, "it is gone", HandRun::Now());
    }
  }

  HandRun job_{Config()};
  std::vector<HandRun::Task> last_;  // of rank 3
};

TEST_F(SlowWorkers, ThoseThatHangAreLostAtTheSliceThatTheyHad) {
  ResetThree();
  LoseThree();
  EXPECT_THAT(job_.failure(), HasSubstr("slice 1 of step 1"));
}

TEST_F(SlowWorkers, ThoseThatReturnAreNotLostAtIt) {
  ResetThree();
  for (const uint32_t rank : {0, 1, 2}) job_.Ready(rank);
  LoseThree();
  EXPECT_EQ(job_.failure(), "");
  job_.Losses(3, last_[0]);
  job_.PushAll(3, last_[0]);
  EXPECT_EQ(job_.step(), 2);
}

// A first step may take long for all alike.
TEST_F(SlowWorkers, InAFirstStepNobodyIsLateBeforeOneIsDone) {
  const auto waits_after = [&](int passed_s) {
    AdvanceRealTime(seconds(passed_s));
    job_.run().CheckTime(HandRun::Now());
    return job_.run().parts().keeper.watch.Status("training").waits();
  };
  EXPECT_EQ(waits_after(2), "");
  const HandRun::Task task = job_.Train(0).at(0);
  job_.Losses(0, task);
  job_.PushAll(0, task);
  EXPECT_EQ(waits_after(6), "");  // 8 s of five times 2
  EXPECT_THAT(waits_after(4), HasSubstr("no loss from rank 1"));
}

TEST_F(SlowWorkers, AFirstStepOfAMinuteIsToldIfNobodyIsDone) {
  AdvanceRealTime(seconds(55));
  job_.run().CheckTime(HandRun::Now());
  const RunWatch& watch = job_.run().parts().keeper.watch;
  EXPECT_EQ(watch.Status("training").waits(), "");
  AdvanceRealTime(seconds(6));
  job_.run().CheckTime(HandRun::Now());
  EXPECT_THAT(watch.Status("training").waits(), HasSubstr("no loss from rank 0"));
}

}  // namespace
}  // namespace muster::testing
