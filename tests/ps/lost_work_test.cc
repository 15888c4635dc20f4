// What ends its workers, and which workers merely ended together.
#include "ps/lost_work.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

using Clock = LostWork::Clock;

WorkItem Slice(int64_t index) { return {WorkItem::Kind::kSlice, index}; }
WorkItem Block(int64_t index) { return {WorkItem::Kind::kBlock, index}; }

class LostWorkTest : public ::testing::Test {
 protected:
  LostWorkTest() { work_.BeginStep(); }

  std::optional<WorkItem> Lose(const std::vector<WorkItem>& missing) {
    return work_.OnLost(missing, now_);
  }
  bool HeldBack(const WorkItem& item) const { return work_.HeldBackUntil(item, now_).has_value(); }

  LostWork work_;
  Clock::time_point now_ = Clock::now();
};

TEST_F(LostWorkTest, ASliceThatEndsThreeWorkersIsFound) {
  EXPECT_EQ(Lose({Slice(2)}), std::nullopt);
  EXPECT_FALSE(HeldBack(Slice(2))) << "one worker was lost, as may happen: nobody waits";
  EXPECT_EQ(Lose({Slice(2), Slice(0)}), std::nullopt);
  EXPECT_TRUE(HeldBack(Slice(2)));
  now_ += LostWork::kHoldBack;
  EXPECT_FALSE(HeldBack(Slice(2)));
  EXPECT_FALSE(HeldBack(Slice(0))) << "the other one was suspected before";
  EXPECT_EQ(Lose({Slice(2), Slice(1)}), Slice(2));
}

// Slices have numbers of their own.
TEST_F(LostWorkTest, ABlockIsNoSlice) {
  EXPECT_EQ(Lose({Block(1), Block(2)}), std::nullopt);
  EXPECT_TRUE(work_.Suspects(Block(1)));
  EXPECT_TRUE(work_.Suspects(Block(2)));
  EXPECT_FALSE(work_.Suspects(Slice(1)));
  EXPECT_EQ(Lose({Block(2)}), std::nullopt);
  EXPECT_EQ(Lose({Slice(2)}), std::nullopt);
  EXPECT_EQ(Lose({Slice(2)}), std::nullopt);
  EXPECT_EQ(Lose({Block(2)}), Block(2));
}

// Four workers that are killed at once, and noticed one after the other: what the first one left is
// given to the second, and what that one left to the third.
TEST_F(LostWorkTest, NoSliceIsToBlameForWorkersThatEndTogether) {
  std::vector<std::vector<WorkItem>> workers;
  for (int64_t slice = 0; slice < 4; ++slice) workers.push_back({Slice(slice)});
  for (size_t lost = 0; lost < workers.size(); ++lost) {
    EXPECT_EQ(Lose(workers[lost]), std::nullopt) << "worker " << lost;
    now_ += std::chrono::milliseconds(20);
    if (lost + 1 == workers.size()) break;
    for (const WorkItem& item : workers[lost]) {  // all that it had, to the next one
      if (!HeldBack(item)) workers[lost + 1].insert(workers[lost + 1].begin(), item);
    }
  }
}

TEST_F(LostWorkTest, AnotherStepBeginsAnew) {
  EXPECT_EQ(Lose({Slice(2)}), std::nullopt);
  EXPECT_EQ(Lose({Slice(2)}), std::nullopt);
  work_.BeginStep();
  EXPECT_FALSE(HeldBack(Slice(2)));
  EXPECT_EQ(Lose({Slice(2)}), std::nullopt);
}

}  // namespace
}  // namespace muster
