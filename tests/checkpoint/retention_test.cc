// Which checkpoints are kept.
#include "ps/record/retention.h"

#include <gmock/gmock-matchers.h>
#include <gmock/gmock-more-matchers.h>
#include <gtest/gtest.h>

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<int64_t> StepsOf(const std::vector<KeptCheckpoint>& kept) {
  std::vector<int64_t> steps;
  for (const KeptCheckpoint& one : kept) steps.push_back(one.name.step);
  return steps;
}

std::vector<KeptCheckpoint> FourEvaluated() {
  return {{{1, 10}, 0.5}, {{1, 20}, 0.7}, {{1, 30}, 0.6}, {{1, 40}, {}}};
}

TEST(RetentionTest, TheNewestStay) {
  auto kept = FourEvaluated();
  EXPECT_THAT(TakeExpired(kept, 2, 0), ElementsAre(CheckpointName{1, 10}, CheckpointName{1, 20}));
  EXPECT_THAT(StepsOf(kept), ElementsAre(30, 40));
  EXPECT_THAT(TakeExpired(kept, 5, 0), IsEmpty());
}

TEST(RetentionTest, TheBestStayBesides) {
  auto kept = FourEvaluated();
  EXPECT_THAT(TakeExpired(kept, 1, 1), ElementsAre(CheckpointName{1, 10}, CheckpointName{1, 30}));
  EXPECT_THAT(StepsOf(kept), ElementsAre(20, 40));
  kept = FourEvaluated();
  (void)TakeExpired(kept, 1, 2);
  EXPECT_THAT(StepsOf(kept), ElementsAre(20, 30, 40));
}

// If one of the newest is also among the best, another best one is kept.
TEST(RetentionTest, TheNewestAreNotCountedAsBest) {
  std::vector<KeptCheckpoint> kept{{{1, 10}, 0.5}, {{1, 20}, 0.4}, {{1, 30}, 0.9}};
  (void)TakeExpired(kept, 1, 1);
  EXPECT_THAT(StepsOf(kept), ElementsAre(10, 30));
}

// The newer one was written after the evaluation of the same weights.
TEST(RetentionTest, OneStaysOfAStep) {
  std::vector<KeptCheckpoint> kept{{{1, 10}, {}}, {{1, 20}, {}}, {{1, 20, true}, 0.5}};
  EXPECT_THAT(TakeExpired(kept, 2, 0), ElementsAre(CheckpointName{1, 20}));
  EXPECT_THAT(StepsOf(kept), ElementsAre(10, 20));
  EXPECT_TRUE(kept.back().name.evaluated);
}

TEST(RetentionTest, OneStaysInAnyCase) {
  auto kept = FourEvaluated();
  (void)TakeExpired(kept, 0, 0);
  EXPECT_THAT(StepsOf(kept), ElementsAre(40));
}

}  // namespace
}  // namespace muster
