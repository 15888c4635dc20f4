// The work of a step: each slice has arrived, is assigned to one order, or is unassigned.
#include "ps/step/step_work.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "common/link/wire_values.h"

namespace muster {
namespace step_work_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Time = StepWork::Time;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr size_t kChunks = 2;
constexpr uint32_t kBuffers = 5;
constexpr TreeNode kLeft{1, 0}, kRight{1, 1};  // halves of four slices
const Time kNow = Time() + std::chrono::hours(1);

// Four slices of two samples each. Ranks 0 and 1 have half of them each.
class StepWorkTest : public ::testing::Test {
 protected:
  StepWorkTest() {
    work_.Begin({.train_samples = 80, .global_batch = 8, .total_steps = 10, .slices = 4});
    BeginStep(0);
  }
  void BeginStep(int64_t step) {
    mine_ = work_.Give(0, step, std::vector<TreeNode>{kLeft}, kNow).id;
    theirs_ = work_.Give(1, step, std::vector<TreeNode>{kRight}, kNow).id;
    work_.BeginStep(step);
  }
  // Reports a loss. Returns "" if it counts.
  std::string Loss(uint32_t rank, uint64_t order, uint32_t slice, double loss = 1,
                   const std::vector<std::pair<std::string, double>>& scalars = {}) {
    wire::SliceLoss message;
    message.set_order(order);
    message.set_slice(slice);
    message.set_samples(2);
    message.set_loss(loss);
    for (const auto& [name, sum] : scalars) {
      message.add_scalar()->set_name(name);
      message.mutable_scalar()->rbegin()->set_sum(sum);
    }
    std::string why;
    const StepLosses::Added added = work_.AddLoss(rank, message, why);
    return added == StepLosses::Added::kDiffers ? "differs" : why;
  }
  std::string Part(uint32_t rank, uint64_t order, const TreeNode& node, uint32_t chunk,
                   uint32_t buffer = 0) {
    wire::GradientPart message;
    message.set_order(order);
    *message.mutable_subtree() = SubtreeOf(node);
    message.set_chunk(chunk);
    message.set_buffer(buffer);
    std::string why;
    const StepOrder* const found = work_.Find(rank, message, why);
    if (found != nullptr) work_.Arrive(*found, message);
    return why;
  }
  void Deliver(uint32_t rank, uint64_t order, const TreeNode& node, uint32_t buffer = 0) {
    const Range slices = Covers(node, 4);
    for (int64_t slice = slices.begin; slice < slices.end; ++slice) {
      EXPECT_EQ(Loss(rank, order, static_cast<uint32_t>(slice)), "");
    }
    for (uint32_t c = 0; c < kChunks; ++c) EXPECT_EQ(Part(rank, order, node, c, buffer), "");
  }
  std::vector<StepOrder> GiveUnassigned(const std::vector<uint32_t>& helpers, Time now = kNow) {
    return work_.GiveUnassigned(helpers, kBuffers, poison_, now);
  }

  StepWork work_{kChunks};
  PoisonWatch poison_;
  uint64_t mine_ = 0, theirs_ = 0;
};

TEST_F(StepWorkTest, AnUndisturbedStep) {
  EXPECT_FALSE(work_.some_unassigned());
  EXPECT_TRUE(work_.Computes(0));
  EXPECT_EQ(work_.OpenSlices(0), 2);
  Deliver(0, mine_, kLeft);
  EXPECT_FALSE(work_.Computes(0));
  EXPECT_FALSE(work_.Owes(0));
  EXPECT_TRUE(work_.Owes(1, 0));
  Deliver(1, theirs_, kRight);
  EXPECT_TRUE(work_.losses().Complete());
  EXPECT_THAT(GiveUnassigned({0, 1}), IsEmpty());
}

TEST_F(StepWorkTest, OnlyWhatAnOpenOrderAsksForCounts) {
  EXPECT_THAT(Loss(0, theirs_, 2), HasSubstr("which is not assigned to it"));
  EXPECT_THAT(Loss(0, mine_, 2), HasSubstr("which is not assigned to it"));
  EXPECT_THAT(Loss(0, 99, 0), HasSubstr("which is not assigned to it"));
  EXPECT_THAT(Part(0, mine_, kLeft, 0), HasSubstr("before its loss"));
  EXPECT_EQ(Loss(0, mine_, 0), "");
  EXPECT_EQ(Loss(0, mine_, 0), "a duplicate loss for slice 0");
  EXPECT_EQ(Loss(0, mine_, 1), "");
  EXPECT_THAT(Part(0, mine_, kRight, 0), HasSubstr("which is not assigned to it"));
  EXPECT_THAT(Part(0, mine_, {0, 0}, 0), HasSubstr("which is not assigned to it"));
  EXPECT_THAT(Part(0, mine_, kLeft, 0, 1), HasSubstr("in buffer 1"));
  EXPECT_EQ(Part(0, mine_, kLeft, 7), "chunk 7, but there are only 2 chunks");
  EXPECT_EQ(Part(0, mine_, kLeft, 1), "");
  EXPECT_EQ(Part(0, mine_, kLeft, 1), "a duplicate of chunk 1");
  work_.Close(0);
  EXPECT_THAT(Part(0, mine_, kLeft, 0), HasSubstr("which is not assigned to it"));
}

// Slices are added in order, whoever reports first.
TEST_F(StepWorkTest, ScalarsAreAddedInTheOrderOfTheSlices) {
  EXPECT_EQ(Loss(1, theirs_, 3, 1, {{"a", -1e17}, {"b", NAN}}), "");
  EXPECT_EQ(Loss(0, mine_, 1, 1, {{"a", 1e17}}), "");
  EXPECT_EQ(Loss(1, theirs_, 2), "");
  EXPECT_EQ(Loss(0, mine_, 0, 1, {{"c", 6}, {"a", 0.1}}), "");
  ScalarSums sums = work_.losses().Scalars();
  EXPECT_EQ(sums.size(), 3u);
  EXPECT_EQ(sums["a"].Mean(), ((0.1 + 1e17) - 1e17) / 6);
  EXPECT_TRUE(std::isnan(sums["b"].Mean()));
  EXPECT_EQ(sums["c"].Mean(), 3);
}

TEST_F(StepWorkTest, ASliceComputedAgainHasTheSameScalars) {
  Deliver(0, mine_, kLeft);
  EXPECT_EQ(Loss(1, theirs_, 2, 1, {{"a", NAN}}), "");
  EXPECT_EQ(Loss(1, theirs_, 3, 1, {{"a", 1}}), "");
  work_.Lose(1);
  const std::vector<StepOrder> given = GiveUnassigned({0});
  ASSERT_EQ(given.size(), 1u);
  EXPECT_EQ(Loss(0, given[0].id, 2, 1, {{"a", NAN}}), "");
  EXPECT_EQ(Loss(0, given[0].id, 3, 1, {{"b", 1}}), "differs");
}

TEST_F(StepWorkTest, ScalarsThatCannotBeAreRefused) {
  std::vector<std::pair<std::string, double>> many;
  for (int i = 0; i < 33; ++i) many.emplace_back(std::to_string(i), 1);
  EXPECT_EQ(Loss(0, mine_, 0, 1, many), "an invalid loss for slice 0");
  EXPECT_EQ(Loss(0, mine_, 0, 1, {{"a b", 1}}), "an invalid loss for slice 0");
  EXPECT_EQ(Loss(0, mine_, 0, 1, {{"a", 1}, {"a", 1}}), "an invalid loss for slice 0");
  EXPECT_FALSE(work_.losses().Has(0));
  many.pop_back();
  EXPECT_EQ(Loss(0, mine_, 0, 1, many), "");
}

// Chunks that have arrived are kept. Only the others are reassigned.
TEST_F(StepWorkTest, WhatALostWorkerHasNotDeliveredIsUnassigned) {
  Deliver(0, mine_, kLeft);
  for (const uint32_t slice : {2, 3}) EXPECT_EQ(Loss(1, theirs_, slice), "");
  EXPECT_EQ(Part(1, theirs_, kRight, 1), "");
  EXPECT_THAT(work_.NextSlices(1, false), ElementsAre(2, 3));
  work_.Lose(1);
  EXPECT_TRUE(work_.some_unassigned());
  const auto given = GiveUnassigned({0});
  ASSERT_EQ(given.size(), 1u);
  EXPECT_TRUE(given[0].urgent);
  EXPECT_EQ(given[0].parts.at(0).node, kRight);
  EXPECT_THAT(given[0].parts.at(0).missing, ElementsAre(true, false));
  EXPECT_EQ(given[0].buffer, 1u) << "its own part stays in buffer 0 until the step ends";
  EXPECT_FALSE(work_.some_unassigned());
  EXPECT_EQ(Loss(0, given[0].id, 2), "") << "the same bits";
  EXPECT_EQ(Loss(0, given[0].id, 3, 2), "differs");
}

TEST_F(StepWorkTest, APieceForEachHelperOneAtATime) {
  work_.Lose(1);
  EXPECT_THAT(GiveUnassigned({0}), IsEmpty()) << "it computes its own part";
  EXPECT_TRUE(work_.needs_helpers());
  Deliver(0, mine_, kLeft);
  const auto given = GiveUnassigned({0, 2});
  ASSERT_EQ(given.size(), 2u);
  EXPECT_EQ(given[0].parts.at(0).node, (TreeNode{0, 2}));
  EXPECT_EQ(given[1].parts.at(0).node, (TreeNode{0, 3}));
  EXPECT_EQ(given[1].rank, 2u);
  EXPECT_EQ(given[1].buffer, 0u);
  EXPECT_FALSE(work_.needs_helpers());
}

// Each slice is assigned to one order at any time, so it arrives a single time.
TEST_F(StepWorkTest, ASubtreeOfWhichAPartHasArrivedComesInPieces) {
  Deliver(0, mine_, kLeft);
  work_.Lose(1);
  const auto pieces = GiveUnassigned({0, 2});
  ASSERT_EQ(pieces.size(), 2u);
  EXPECT_EQ(Loss(2, pieces[1].id, 3), "");
  EXPECT_EQ(Part(2, pieces[1].id, {0, 3}, 0), "");
  work_.Close(2);
  work_.Close(0);
  const auto again = GiveUnassigned({1});
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].parts.at(0).node, (TreeNode{0, 2}));
  EXPECT_THAT(again[0].parts.at(0).missing, ElementsAre(true, true));
  const auto rest = GiveUnassigned({2});
  ASSERT_EQ(rest.size(), 1u);
  EXPECT_EQ(rest[0].parts.at(0).node, (TreeNode{0, 3}));
  EXPECT_THAT(rest[0].parts.at(0).missing, ElementsAre(false, true));
  EXPECT_EQ(rest[0].buffer, 1u) << "the sum may still read buffer 0";
}

// Otherwise the last worker could run out of buffers.
TEST_F(StepWorkTest, ABufferInWhichNothingHasArrivedIsFreeOnceItsOrderIsClosed) {
  work_.BeginStep(1);
  const std::vector<TreeNode> nodes{{0, 1}, kRight};
  const uint64_t order = work_.Give(0, 1, nodes, kNow).id;
  EXPECT_EQ(Loss(0, order, 1), "");
  EXPECT_EQ(Part(0, order, {0, 1}, 0), "");
  work_.Close(0);
  std::vector<uint32_t> buffers;
  for (int i = 0; i < 4; ++i) {
    for (const StepOrder& given : GiveUnassigned({0})) {
      buffers.push_back(given.buffer);
      const StepOrder::Part& part = given.parts.at(0);
      const Range slices = Covers(part.node, 4);
      for (int64_t slice = slices.begin; slice < slices.end; ++slice) {
        EXPECT_EQ(Loss(0, given.id, static_cast<uint32_t>(slice)), "");
      }
      for (uint32_t c = 0; c < kChunks; ++c) {
        if (!part.missing[c]) continue;
        EXPECT_EQ(Part(0, given.id, part.node, c, given.buffer), "");
      }
    }
  }
  EXPECT_THAT(buffers, ElementsAre(1, 2, 3)) << "slice 0, slice 1's other chunk, slices 2 and 3";
}

TEST_F(StepWorkTest, ASuccessorHasAllBuffers) {
  Deliver(0, mine_, kLeft);
  for (const uint32_t slice : {2, 3}) EXPECT_EQ(Loss(1, theirs_, slice), "");
  EXPECT_EQ(Part(1, theirs_, kRight, 1), "");
  work_.Lose(1);
  EXPECT_EQ(GiveUnassigned({1}).at(0).buffer, 0u);
}

// The step was ordered ahead, and then a worker was lost.
TEST_F(StepWorkTest, TheNextStepMayBeginWithUnassignedSlices) {
  Deliver(0, mine_, kLeft);
  Deliver(1, theirs_, kRight);
  const uint64_t next = work_.Give(0, 1, std::vector<TreeNode>{kLeft}, kNow).id;
  (void)work_.Give(1, 1, std::vector<TreeNode>{kRight}, kNow);
  EXPECT_TRUE(work_.Owes(1));
  EXPECT_FALSE(work_.Owes(1, 0));
  work_.Lose(1);
  EXPECT_FALSE(work_.some_unassigned()) << "this is about the current step";
  work_.BeginStep(1);
  EXPECT_TRUE(work_.some_unassigned());
  EXPECT_THAT(Loss(0, mine_, 0), HasSubstr("which is not assigned to it"));
  EXPECT_EQ(Loss(0, next, 0), "");
}

TEST_F(StepWorkTest, LateAreThoseThatOweForTooLong) {
  Deliver(0, mine_, kLeft);
  EXPECT_THAT(work_.Late(kNow + seconds(2), kNow, seconds(2)), IsEmpty());
  EXPECT_THAT(work_.Late(kNow + milliseconds(2001), kNow, seconds(2)), ElementsAre(1));
  EXPECT_THAT(work_.Late(kNow + seconds(3), kNow + seconds(2), seconds(2)), IsEmpty());
  work_.Extend(seconds(5));
  EXPECT_THAT(work_.Late(kNow + seconds(6), kNow, seconds(2)), IsEmpty());
}

// A slice ends its workers. First both slices are suspected, then one at a time, with a pause
// before the last attempt.
TEST_F(StepWorkTest, SuspectedSlicesComeByThemselves) {
  Deliver(0, mine_, kLeft);
  using Kind = WorkItem::Kind;
  const auto lose = [&](uint32_t rank, bool urgent, Time now) {
    std::vector<WorkItem> items;
    for (const int64_t slice : work_.NextSlices(rank, urgent))
      items.push_back({Kind::kSlice, slice});
    work_.Lose(rank);
    return poison_.OnLost(rank, items, now);
  };
  EXPECT_FALSE(lose(1, false, kNow));
  auto given = GiveUnassigned({2});
  ASSERT_EQ(given.size(), 1u);
  EXPECT_EQ(given[0].parts.at(0).node, (TreeNode{0, 2})) << "not the whole subtree";
  EXPECT_FALSE(lose(2, true, kNow));
  given = GiveUnassigned({3, 4});
  ASSERT_EQ(given.size(), 1u) << "slice 2 is paused";
  EXPECT_EQ(given[0].parts.at(0).node, (TreeNode{0, 3}));
  EXPECT_EQ(work_.paused_until(), kNow + PoisonWatch::kPause);
  given = GiveUnassigned({4}, kNow + PoisonWatch::kPause);
  ASSERT_EQ(given.size(), 1u);
  const auto deadly = lose(4, true, kNow + seconds(9));
  ASSERT_TRUE(deadly);
  EXPECT_EQ(*deadly, (WorkItem{Kind::kSlice, 2}));
}

// If a lost worker had suspected work, only that work is blamed.
TEST(PoisonWatchTest, WhatWasSuspectedBeforeIsBlamedAlone) {
  using Kind = WorkItem::Kind;
  const WorkItem before{Kind::kSlice, 1}, suspected{Kind::kSlice, 2}, after{Kind::kSlice, 3};
  PoisonWatch poison;
  EXPECT_FALSE(poison.OnLost(0, {suspected}, kNow));
  EXPECT_FALSE(poison.OnLost(0, {before, suspected, after}, kNow));
  EXPECT_FALSE(poison.Suspects(before));
  EXPECT_FALSE(poison.Suspects(after));
  EXPECT_EQ(poison.OnLost(0, {before, suspected, after}, kNow), suspected);
}

// Workers hang. Their work is taken away, and later they are lost.
TEST(PoisonWatchTest, WhatWasTakenFromALostWorkerIsBlamed) {
  using Kind = WorkItem::Kind;
  const WorkItem before{Kind::kBlock, 1}, deadly{Kind::kBlock, 2}, after{Kind::kBlock, 3};
  PoisonWatch poison;
  poison.OnReset(0, {before, deadly, after});
  EXPECT_TRUE(poison.Suspects(after));
  poison.OnReset(1, {deadly});
  poison.OnReset(2, {deadly});
  EXPECT_FALSE(poison.OnLost(0, {}, kNow));
  EXPECT_FALSE(poison.Suspects(after)) << "two others hang in the one before it";
  EXPECT_FALSE(poison.OnLost(1, {}, kNow));
  EXPECT_EQ(poison.OnLost(2, {}, kNow), deadly);
}

TEST(PoisonWatchTest, AWorkerThatIsReadyAgainDidNotHang) {
  const WorkItem item{WorkItem::Kind::kSlice, 1};
  PoisonWatch poison;
  for (const uint32_t rank : {0, 1, 2, 3}) {
    poison.OnReset(rank, {item});
    EXPECT_TRUE(poison.Suspects(item));
    poison.Forget(rank);
    EXPECT_FALSE(poison.Suspects(item));
    EXPECT_FALSE(poison.OnLost(rank, {}, kNow));
  }
}

TEST(PoisonWatchTest, AStepForgetsWhatWasTakenInThePreviousOne) {
  const WorkItem item{WorkItem::Kind::kSlice, 1};
  PoisonWatch poison;
  for (const uint32_t rank : {0, 1, 2, 3}) {
    poison.OnReset(rank, {item});
    poison.BeginStep();
    EXPECT_FALSE(poison.Suspects(item));
    EXPECT_FALSE(poison.OnLost(rank, {}, kNow));
  }
}

TEST_F(StepWorkTest, AnOrderMayHaveSeveralSubtrees) {
  work_.BeginStep(1);
  const std::vector<TreeNode> nodes{{0, 1}, {1, 1}};
  const uint64_t order = work_.Give(0, 1, nodes, kNow).id;
  (void)work_.Give(1, 1, std::vector<TreeNode>{{0, 0}}, kNow);
  Deliver(0, order, {0, 1}, 0);
  EXPECT_TRUE(work_.Owes(0));
  EXPECT_THAT(work_.NextSlices(0, false), ElementsAre(2, 3)) << "those of its next subtree";
  EXPECT_EQ(work_.OpenSlices(0), 2);
  Deliver(0, order, {1, 1}, 1);
  EXPECT_FALSE(work_.Owes(0));
  EXPECT_EQ(work_.OwnLosses(0), 3);
}

}  // namespace step_work_test
}  // namespace muster
