// Who gets the slices of a worker that is gone, and when: by hand.
#include <gtest/gtest.h>

#include "tests/ps/hand_coordinator.h"

namespace muster::testing {
namespace {

const std::vector<std::vector<TreeNode>> kHalves{{{1, 0}}, {{1, 1}}};
using Task = HandCoordinator::Task;

class OrphanedSlices : public ::testing::Test {
 protected:
  static config::Config Config() {
    config::Config config = SmallConfig(2, 4);
    config.mutable_cluster()->set_on_lost_worker(config::Cluster::REPLACE);
    return config;
  }
  // Rank 1 has nothing any more, and waits to take part again.
  void Renew() {
    job_.coordinator().Fence(1);
    job_.DropAll(1);
    job_.Ready(1);
    job_.Settle();
  }
  void Compute(uint32_t rank, const Task& task) {
    job_.Losses(rank, task);
    job_.PushAll(rank, task);
  }
  void ExpectUndisturbed() {
    HandCoordinator other(Config());
    while (!other.coordinator().done()) other.WholeStep(kHalves);
    EXPECT_EQ(job_.failure(), "");
    EXPECT_TRUE(job_.coordinator().done());
    EXPECT_EQ(job_.coordinator().weights_hash(), other.coordinator().weights_hash());
  }

  HandCoordinator job_{Config()};
};

// One piece at a time, and none before it has reported what it computes.
TEST_F(OrphanedSlices, GoToWhoHasNothingElseToDo) {
  const Task mine = job_.Train(0, kHalves[0]).at(0);
  job_.coordinator().OnLost(1, ExitCode::kPeerFailed, "for a test");
  job_.Settle();
  EXPECT_FALSE(job_.Redo(0)) << "it is at its own";
  EXPECT_EQ(job_.Loss(0, mine, 0), "");
  job_.Settle();
  EXPECT_FALSE(job_.Redo(0)) << "… of which one is left";
  EXPECT_EQ(job_.Loss(0, mine, 1), "");
  job_.Settle();
  const auto first = job_.Redo(0);
  ASSERT_TRUE(first) << "while it is at its backward";
  EXPECT_EQ(first->node, (TreeNode{0, 2}));
  EXPECT_FALSE(job_.Redo(0)) << "the other one may be somebody else's";
  job_.PushAll(0, mine);
  job_.Losses(0, *first);
  const auto second = job_.Redo(0);
  ASSERT_TRUE(second);
  EXPECT_EQ(second->node, (TreeNode{0, 3}));
  job_.PushAll(0, *first);
  Compute(0, *second);
  EXPECT_EQ(job_.coordinator().step(), 1);
}

// It has all weights of the step at once: it need not wait for the next one.
TEST_F(OrphanedSlices, AreDoneByANewcomerInTheSameStep) {
  job_.ShareMemory();
  const Task mine = job_.Train(0, kHalves[0]).at(0);
  Renew();
  const auto enter = job_.Next(1, [](const auto& m) { return m.has_enter(); });
  ASSERT_TRUE(enter);
  EXPECT_EQ(enter->enter().version(), 0);
  for (const uint32_t slice : {2u, 3u}) {
    const auto redo = job_.Redo(1);
    ASSERT_TRUE(redo) << slice;
    EXPECT_EQ(redo->step, 0);
    EXPECT_EQ(redo->node, (TreeNode{0, slice}));
    Compute(1, *redo);
  }
  EXPECT_FALSE(job_.Redo(0));
  Compute(0, mine);
  while (!job_.coordinator().done()) job_.WholeStep(kHalves);
  ExpectUndisturbed();
}

// Its weights would have to be sent.
TEST_F(OrphanedSlices, AreNotForANewcomerAcrossANetwork) {
  const Task mine = job_.Train(0, kHalves[0]).at(0);
  Renew();
  EXPECT_TRUE(job_.Kinds(1).empty());
  Compute(0, mine);
  for (auto redo = job_.Redo(0); redo; redo = job_.Redo(0)) Compute(0, *redo);
  EXPECT_EQ(job_.coordinator().step(), 1);
  const auto enter = job_.Next(1, [](const auto& m) { return m.has_enter(); });
  ASSERT_TRUE(enter);
  EXPECT_EQ(enter->enter().version(), 1);
}

// Nobody's slices are missing: it comes with the next step.
TEST_F(OrphanedSlices, WithoutSomeANewcomerWaitsForTheNextStep) {
  job_.ShareMemory();
  const Task mine = job_.Train(0, kHalves[0]).at(0);
  const Task theirs = job_.Train(1, kHalves[1]).at(0);
  Compute(1, theirs);
  Renew();
  EXPECT_TRUE(job_.Kinds(1).empty());
  Compute(0, mine);
  const auto enter = job_.Next(1, [](const auto& m) { return m.has_enter(); });
  ASSERT_TRUE(enter);
  EXPECT_EQ(enter->enter().version(), 1);
}

}  // namespace
}  // namespace muster::testing
