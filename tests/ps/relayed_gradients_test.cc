// A relay's sum counts for all workers whose gradients are in it, or not at all.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "tests/ps/hand_run.h"

namespace muster::testing {
namespace relayed_gradients_test {

using ::testing::HasSubstr;
using Parts = std::vector<std::pair<uint32_t, HandRun::Task>>;

constexpr TreeNode kRoot{2, 0}, kLeft{1, 0}, kRight{1, 1};

// One of four slices for each worker. All losses of the first step have arrived.
class RelayedGradients : public ::testing::Test {
 protected:
  RelayedGradients() {
    for (uint32_t rank = 0; rank < 4; ++rank) tasks_.emplace_back(rank, job_.Train(rank).at(0));
    for (const auto& [rank, task] : tasks_) job_.Losses(rank, task);
  }
  static config::Config Config() {
    config::Config config = SmallConfig(4, 4);
    config.mutable_run()->set_steps(3);
    config.mutable_cluster()->set_on_lost_worker(config::Cluster::REPLACE);
    return config;
  }
  Parts Some(const std::vector<uint32_t>& ranks) const {
    Parts some;
    for (const uint32_t rank : ranks) some.push_back(tasks_.at(rank));
    return some;
  }
  bool Owes(uint32_t rank) { return job_.run().parts().work.slices.Owes(rank, 0); }
  uint64_t Weights() { return job_.run().engine().variables.HashWeights(1); }
  // The weights that follow if each worker sends its own gradients.
  static uint64_t PlainWeights() {
    HandRun plain{Config()};
    plain.WholeStep();
    return plain.run().engine().variables.HashWeights(1);
  }

  HandRun job_{Config(), 0, 0, /*relayed=*/4};
  Parts tasks_;
};

TEST_F(RelayedGradients, CountForAllWorkers) {
  ASSERT_GT(job_.chunks(), 1u);
  for (const uint32_t chunk : job_.All()) {
    for (const uint32_t rank : {0, 1, 2, 3}) EXPECT_TRUE(Owes(rank));
    EXPECT_EQ(job_.PushSum(kRoot, tasks_, chunk), "");
  }
  EXPECT_EQ(job_.step(), 1);
  EXPECT_EQ(Weights(), PlainWeights());
  EXPECT_EQ(job_.failure(), "");
  job_.WholeStep();
  EXPECT_EQ(job_.step(), 2);
}

TEST_F(RelayedGradients, MayComeBesideOthers) {
  for (const uint32_t chunk : job_.All()) {
    EXPECT_EQ(job_.PushSum(kRight, Some({2, 3}), chunk), "");
    if (chunk % 2 == 0) {
      EXPECT_EQ(job_.PushSum(kLeft, Some({0, 1}), chunk), "");
    } else {
      for (const uint32_t rank : {1, 0}) EXPECT_EQ(job_.Push(rank, tasks_[rank].second, chunk), "");
    }
  }
  EXPECT_EQ(job_.step(), 1);
  EXPECT_EQ(Weights(), PlainWeights());
}

TEST_F(RelayedGradients, OnlyTheirWorkersAreDone) {
  for (const uint32_t chunk : job_.All()) {
    EXPECT_EQ(job_.PushSum(kRight, Some({2, 3}), chunk), "");
  }
  EXPECT_TRUE(Owes(0));
  EXPECT_TRUE(Owes(1));
  EXPECT_FALSE(Owes(2));
  EXPECT_FALSE(Owes(3));
}

TEST_F(RelayedGradients, AreDroppedWholeIfOneOrderIsClosed) {
  job_.run().OnLost(2, ExitCode::kPeerFailed, "it is gone", HandRun::Now());
  job_.Settle();
  EXPECT_THAT(job_.PushSum(kRoot, tasks_, 0), HasSubstr("which is not assigned to it"));
  EXPECT_THAT(job_.PushSum(kRight, Some({2, 3}), 0), HasSubstr("which is not assigned to it"));
  // Nothing of it was counted, so the others send their gradients alone.
  for (const uint32_t rank : {0, 1, 3}) job_.PushAll(rank, tasks_[rank].second);
  EXPECT_EQ(job_.step(), 0);
  const auto taken = job_.Train(0, /*urgent=*/true);
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_EQ(taken[0].node, (TreeNode{0, 2}));
  job_.Losses(0, taken[0]);
  job_.PushAll(0, taken[0]);
  EXPECT_EQ(job_.step(), 1);
  EXPECT_EQ(Weights(), PlainWeights());
}

// Otherwise a worker could put its values in place of all others'.
TEST_F(RelayedGradients, AreOfWorkersBehindTheSameRelay) {
  HandRun job{Config(), 0, 0, /*relayed=*/2};
  Parts tasks;
  for (uint32_t rank = 0; rank < 4; ++rank) tasks.emplace_back(rank, job.Train(rank).at(0));
  for (const auto& [rank, task] : tasks) job.Losses(rank, task);
  EXPECT_EQ(job.PushSum(kLeft, {tasks[0], tasks[1]}, 0), "");
  EXPECT_EQ(job.PushSum(kRight, {tasks[2], tasks[3]}, 0),
            "a sum with a gradient of rank 3, which has another connection");
  EXPECT_EQ(job.PushSum({0, 3}, {tasks[3]}, 0), "") << "its own";
  for (const uint32_t rank : {2, 0, 1}) {
    for (const uint32_t chunk : job.All()) (void)job.Push(rank, tasks[rank].second, chunk);
  }
  for (const uint32_t chunk : job.All()) (void)job.Push(3, tasks[3].second, chunk);
  EXPECT_EQ(job.step(), 1);
}

TEST_F(RelayedGradients, CountOnce) {
  EXPECT_EQ(job_.PushSum(kLeft, Some({0, 1}), 0), "");
  EXPECT_EQ(job_.PushSum(kLeft, Some({0, 1}), 0), "a duplicate of chunk 0");
  EXPECT_EQ(job_.PushSum(kRoot, tasks_, 0), "a duplicate of chunk 0");
  EXPECT_EQ(job_.Push(1, tasks_[1].second, 0), "a duplicate of chunk 0");
  EXPECT_EQ(job_.Push(2, tasks_[2].second, 0), "");
  EXPECT_EQ(job_.PushSum(kRight, Some({2, 3}), 0), "a duplicate of chunk 0");
  EXPECT_EQ(job_.Push(3, tasks_[3].second, 0), "") << "it was not in the sum that was dropped";
}

TEST_F(RelayedGradients, AreNotTakenFromGpus) {
  wire::GradientPart part;
  part.set_step(0);
  part.set_in_gpu(true);
  EXPECT_NE(job_.run().OnGradient(0, part, {}, HandRun::Now()), "");
  EXPECT_TRUE(Owes(0));
}

TEST_F(RelayedGradients, NameTheirOrdersAndSubtrees) {
  EXPECT_EQ(job_.PushSum(kRoot, Some({0, 1, 3}), 0),
            "a sum of 3 gradients that do not make up subtree 2.0");
  EXPECT_EQ(job_.PushSum(kLeft, Some({1, 0}), 0),
            "a sum of 2 gradients that do not make up subtree 1.0");
  Parts parts = Some({0, 1});
  parts[1].first = 4;
  EXPECT_EQ(job_.PushSum(kLeft, parts, 0),
            "a sum with a gradient of rank 4, which has another connection");
  parts[1].first = 2;
  EXPECT_THAT(job_.PushSum(kLeft, parts, 0), HasSubstr("which is not assigned to it"));
  parts = Some({0, 1});
  ++parts[1].second.buffer;
  EXPECT_THAT(job_.PushSum(kLeft, parts, 0), HasSubstr("which is not assigned to it"));
  EXPECT_EQ(job_.PushSum(kLeft, Some({0, 1}), 0), "");
}

}  // namespace relayed_gradients_test
}  // namespace muster::testing
