// Which gradient buffer a member may use next.
#include "ps/leases.h"

#include <gtest/gtest.h>

#include <array>

namespace muster {
namespace {

constexpr uint32_t kRank = 1;
constexpr int64_t kStep = 7;
constexpr uint32_t kArenas = 2;
constexpr TreeNode kLeft{0, 0};
constexpr TreeNode kRight{0, 1};
constexpr TreeNode kNext{0, 2};
constexpr std::array<uint32_t, 2> kChunks{0, 1};

class LeasesTest : public ::testing::Test {
 protected:
  std::optional<uint32_t> Free() const { return leases_.FreeArena(kRank, kStep, kArenas); }

  Leases leases_{kChunks.size()};
};

TEST_F(LeasesTest, AnOpenLeaseKeepsItsArena) {
  leases_.Give(kRank, kStep, {kLeft});
  EXPECT_EQ(Free(), 1);
  leases_.GiveAgain(kRank, kStep, kRight, 1, kChunks);
  EXPECT_EQ(Free(), std::nullopt);
}

TEST_F(LeasesTest, AClosedLeaseFreesAnArenaThatNothingWasAcceptedFrom) {
  leases_.Give(kRank, kStep, {kLeft, kRight});
  leases_.CloseAll(kRank);
  EXPECT_EQ(Free(), 0);
}

// The sum of the step reads what was accepted where it lies.
TEST_F(LeasesTest, AClosedLeaseKeepsAnArenaWithAnAcceptedChunkUntilTheStepEnds) {
  const uint64_t first = leases_.Give(kRank, kStep, {kLeft, kRight});
  ASSERT_TRUE(leases_.Bring(first, 1));
  leases_.CloseAll(kRank);
  EXPECT_EQ(Free(), 1);
  const Lease& again = leases_.GiveAgain(kRank, kStep, kNext, 1, kChunks);
  ASSERT_TRUE(leases_.Bring(again.id, 0));
  leases_.CloseAll(kRank);
  EXPECT_EQ(Free(), std::nullopt);

  leases_.Forget(kStep + 1);
  EXPECT_EQ(leases_.FreeArena(kRank, kStep + 1, kArenas), 0);
}

TEST_F(LeasesTest, ALeaseOfTheNextStepDoesNotTakeAnArenaOfThisOne) {
  leases_.Give(kRank, kStep + 1, {kLeft, kRight});
  EXPECT_EQ(Free(), 0);
}

TEST_F(LeasesTest, AMemberThatTakesALostRankOverStartsWithAllArenas) {
  const uint64_t first = leases_.Give(kRank, kStep, {kLeft, kRight});
  ASSERT_TRUE(leases_.Bring(first, 0));
  leases_.Disown(kRank);
  EXPECT_EQ(Free(), 0);
  EXPECT_EQ(leases_.Find(first, kRank), nullptr);
}

TEST_F(LeasesTest, AChunkCountsOnce) {
  const uint64_t first = leases_.Give(kRank, kStep, {kLeft});
  EXPECT_TRUE(leases_.Bring(first, 0));
  EXPECT_FALSE(leases_.Bring(first, 0));
  EXPECT_TRUE(leases_.Owes(kRank, kStep));
  EXPECT_TRUE(leases_.Bring(first, 1));
  EXPECT_FALSE(leases_.Owes(kRank, kStep));
}

TEST_F(LeasesTest, AClosedLeaseIsNotFound) {
  const uint64_t first = leases_.Give(kRank, kStep, {kLeft});
  EXPECT_NE(leases_.Find(first, kRank), nullptr);
  EXPECT_EQ(leases_.Find(first, kRank + 1), nullptr);
  EXPECT_EQ(leases_.Find(first + 1, kRank), nullptr);
  leases_.CloseAll(kRank);
  EXPECT_EQ(leases_.Find(first, kRank), nullptr);
}

}  // namespace
}  // namespace muster
