// Slices move soon after a worker becomes slow, never because of noise, not if it costs more than
// it saves, and back if it did not help. Tested with sequences of rates.
#include "ps/step/share_policy.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <random>

#include "common/plan/split.h"

namespace muster {
namespace {

using ::testing::ElementsAre;

// A run whose workers need these times for a slice. A step takes as long as the slowest worker,
// plus an overhead.
class Scripted {
 public:
  using Times = std::vector<double>;  // milliseconds

  explicit Scripted(std::vector<int64_t> slices, int64_t steps = 100000)
      : slices_(std::move(slices)), steps_(steps) {
    policy_.Begin(0);
  }

  // The overhead of a step in milliseconds, depending on the shares.
  std::function<double(const std::vector<int64_t>&)> besides = [](const auto&) { return 0; };
  double cost_of_a_change_ms = 0;

  void Go(int64_t steps, const std::function<Times(int64_t step)>& times) {
    for (const int64_t end = step_ + steps; step_ < end && step_ < steps_; ++step_) {
      const Times now = times(step_);
      double ms = Longest(slices_, now) + besides(slices_);
      if (changed_at_ == step_) ms += cost_of_a_change_ms;
      policy_.EndStep(step_, ms / 1e3);
      if (!policy_.IsDue()) continue;
      ++looks_;
      const auto decision = policy_.Look(step_ + 1, steps_ - step_ - 1, slices_, now);
      if (!decision) continue;
      EXPECT_NE(decision->slices, slices_);
      EXPECT_DOUBLE_EQ(decision->now_ms, Longest(slices_, now));
      EXPECT_DOUBLE_EQ(decision->then_ms, Longest(decision->slices, now));
      slices_ = decision->slices;
      changed_at_ = step_ + 1;
      ++changes_;
      taken_back_ += decision->taken_back;
    }
  }
  void Go(int64_t steps, const Times& times) {
    Go(steps, [&](int64_t) { return times; });
  }

  const std::vector<int64_t>& slices() const { return slices_; }
  int changes() const { return changes_; }
  int taken_back() const { return taken_back_; }
  int looks() const { return looks_; }
  SharePolicy& policy() { return policy_; }

 private:
  SharePolicy policy_;
  std::vector<int64_t> slices_;
  const int64_t steps_;
  int64_t step_ = 0, changed_at_ = -1;
  int changes_ = 0, taken_back_ = 0, looks_ = 0;
};

TEST(SharePolicy, WhoIsHalfAsFastGetsHalfAsMuchAfterTenSteps) {
  Scripted run({8, 8});
  run.Go(SharePolicy::kSteps, {100, 200});  // and a cold one
  EXPECT_EQ(run.changes(), 0);
  run.Go(1, {100, 200});
  EXPECT_THAT(run.slices(), ElementsAre(11, 5));
  run.Go(1000, {100, 200});
  EXPECT_EQ(run.changes(), 1);
}

TEST(SharePolicy, AndAsMuchAsTheOthersOnceItIsAsFast) {
  Scripted run({4, 4, 4, 4});
  run.Go(100, {100, 100, 100, 200});
  EXPECT_THAT(run.slices(), ElementsAre(5, 5, 4, 2));
  run.Go(100, {100, 100, 100, 100});
  EXPECT_THAT(run.slices(), ElementsAre(4, 4, 4, 4));
  EXPECT_EQ(run.changes(), 2);
}

TEST(SharePolicy, NoiseMovesNothing) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> noise(0.985, 1.015);
  Scripted run({32, 32});
  run.Go(5000, [&](int64_t) { return Scripted::Times{100 * noise(random), 100 * noise(random)}; });
  EXPECT_GT(run.looks(), 400);
  EXPECT_EQ(run.changes(), 0);
}

// 16 slices cannot be divided any better if workers differ by less than one in eight.
TEST(SharePolicy, WhereADivisionIsNoBetterNothingMoves) {
  Scripted run({8, 8});
  run.Go(1000, {100, 112});
  EXPECT_EQ(run.changes(), 0);
  run.Go(1000, {100, 130});
  EXPECT_THAT(run.slices(), ElementsAre(9, 7));
}

// Short steps are checked once per second, not every ten steps.
TEST(SharePolicy, ALookTakesTime) {
  Scripted run({8, 8});
  run.Go(600, {0.1, 0.2});  // 1.6 ms each
  EXPECT_EQ(run.looks(), 0);
  run.Go(100, {0.1, 0.2});
  EXPECT_EQ(run.looks(), 1);
  EXPECT_THAT(run.slices(), ElementsAre(11, 5));
}

// The rest of the run is too short for the past cost of a change.
TEST(SharePolicy, TheEndOfARunIsNoTimeForAChange) {
  Scripted run({8, 8}, 12);
  run.Go(12, {100, 200});
  EXPECT_EQ(run.changes(), 0) << "the last step saves 0.5 s, less than the assumed 0.8 s";
  Scripted longer({8, 8}, 14);
  longer.Go(14, {100, 200});
  EXPECT_EQ(longer.changes(), 1);
}

TEST(SharePolicy, WhatAChangeCostsIsLearnt) {
  Scripted run({32, 32});
  run.cost_of_a_change_ms = 1e5;  // the policy assumes at most one step
  run.Go(30, {100, 200});
  EXPECT_THAT(run.slices(), ElementsAre(43, 21));
  // 40 would save 300 of 4300 ms a step, 3000 ms in 10 steps, but the assumed cost is 4300 ms.
  run.Go(100, {100, 160});
  EXPECT_THAT(run.slices(), ElementsAre(43, 21));
  Scripted cheap({32, 32});
  cheap.Go(30, {100, 200});
  EXPECT_THAT(cheap.slices(), ElementsAre(43, 21));
  cheap.Go(100, {100, 160});
  EXPECT_THAT(cheap.slices(), ElementsAre(40, 24));
}

// If more partial gradients cost more than the shares save, the old shares return. Retries become
// ever rarer.
TEST(SharePolicy, WhatDoesNotHelpIsTakenBack) {
  Scripted run({8, 8});
  run.besides = [](const auto& slices) { return slices[0] == 8 ? 0 : 800; };
  run.Go(11, {100, 200});
  EXPECT_THAT(run.slices(), ElementsAre(11, 5));
  run.Go(11, {100, 200});
  EXPECT_THAT(run.slices(), ElementsAre(8, 8));
  EXPECT_EQ(run.taken_back(), 1);
  run.Go(978, {100, 200});  // 1000 steps: 10 + 10, 20 + 20, 40 + 40, …
  EXPECT_LE(run.changes(), 12);
  EXPECT_EQ(run.taken_back(), run.changes() / 2);
}

// A worker that is slow every other second does not move slices back and forth each time.
TEST(SharePolicy, RatesThatComeAndGoAreFollowedEverMoreRarely) {
  Scripted run({8, 8});
  const auto swings = [](int64_t step) {
    return step / 11 % 2 == 0 ? Scripted::Times{100, 200} : Scripted::Times{200, 100};
  };
  run.Go(2000, swings);
  EXPECT_LE(run.changes(), 25);
}

TEST(SharePolicy, OthersShareByWhatIsKnown) {
  SharePolicy policy;
  EXPECT_THAT(policy.Divide(7, 16, {}, 3), ElementsAre(5, 5, 6));
  EXPECT_THAT(policy.Divide(7, 16, {100, 100, 200}, 3), ElementsAre(7, 6, 3));
  EXPECT_THAT(policy.Divide(7, 16, {100, 101, 99}, 3), ElementsAre(5, 5, 6)) << "as good as even";
  EXPECT_THAT(policy.Divide(7, 2, {100, 100, 200}, 3), ElementsAre(1, 1, 0));
}

}  // namespace
}  // namespace muster
