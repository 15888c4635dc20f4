// Workers' reports become shares: which reports count, and the messages.
#include "ps/step/shares.h"

#include <gmock/gmock-matchers.h>
#include <gmock/gmock-more-matchers.h>
#include <gtest/gtest.h>

#include <numeric>

namespace muster {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Two workers, 16 slices of 4 samples. The last batch of each epoch of 5 steps is half a batch.
class SharesTest : public ::testing::Test {
 protected:
  SharesTest() { shares_.Begin(plan_, 0, 2); }
  // Both workers report a step, and the server its length.
  void Step(double first_ms, double second_ms) {
    Report(0, first_ms);
    Report(1, second_ms);
    shares_.EndStep(step_++, 0.16);
  }
  void Report(uint32_t rank, double slice_ms) {
    wire::StepTimes times;
    times.set_step(step_);
    const double slices = static_cast<double>(shares_.assignment().SlicesOf(rank).at(0).size());
    const double share =
        static_cast<double>(plan_.At(step_).samples) / static_cast<double>(plan_.global_batch);
    times.set_compute_ms(0.75 * slice_ms * slices * share);
    times.set_input_ms(0.25 * slice_ms * slices * share);
    shares_.AddTimes(rank, times);
  }
  std::optional<events::SharesChanged> Look() { return shares_.Divide(step_, {0, 1}, false); }
  static std::vector<int64_t> Sizes(const Shares& shares) {
    std::vector<int64_t> sizes;
    for (const uint32_t rank : shares.sharing()) {
      int64_t size = 0;
      for (const Range& range : shares.assignment().SlicesOf(rank)) size += range.size();
      sizes.push_back(size);
    }
    return sizes;
  }

  const StepPlan plan_{.train_samples = 288, .global_batch = 64, .total_steps = 1000, .slices = 16};
  Shares shares_{true, 3};
  int64_t step_ = 0;
};

TEST_F(SharesTest, FollowTheReports) {
  for (int i = 0; i < 11; ++i) Step(10, 20);
  const auto change = Look();
  ASSERT_TRUE(change);
  EXPECT_THAT(Sizes(shares_), ElementsAre(11, 5));
  EXPECT_EQ(shares_.assignment().from_step, 11);
  EXPECT_EQ(TextOf(*change),
            "from step 11 on: rank 0 11 slices (before: 8), rank 1 5 (8); rank 1 takes 20 ms per "
            "slice, the others 10; expected time of the slowest for compute and input: 110 ms per "
            "step, measured 160");
  EXPECT_THAT(shares_.TimesOf({0, 1}), ElementsAre(10, 20)) << "for evaluations";
}

TEST_F(SharesTest, StayEvenWhereNobodyMeasures) {
  Shares even(false, 2);
  even.Begin(plan_, 0, 2);
  for (int i = 0; i < 20; ++i) {
    wire::StepTimes times;
    times.set_step(i);
    times.set_compute_ms(i % 2 == 0 ? 100 : 200);
    even.AddTimes(static_cast<uint32_t>(i % 2), times);
    even.EndStep(i, 1);
  }
  EXPECT_FALSE(even.Divide(20, {0, 1}, false));
  EXPECT_THAT(Sizes(even), ElementsAre(8, 8));
  EXPECT_THAT(even.TimesOf({0, 1}), IsEmpty());
}

// A worker that did other work as well, or just got another share, is not considered slow.
TEST_F(SharesTest, WhatSaysNothingAboutAWorkerDoesNotCount) {
  for (int i = 0; i < 4; ++i) Step(10, 500);
  EXPECT_FALSE(shares_.Divide(step_, {0, 1}, /*by_slice=*/true)) << "the same sizes";
  Step(10, 500);  // cold
  for (int i = 0; i < 6; ++i) {
    shares_.Disturbed(1, step_);
    Step(10, 500);
  }
  EXPECT_FALSE(Look());
  for (int i = 0; i < 11; ++i) Step(10, 10);
  EXPECT_FALSE(Look());
}

// It reports nothing about a step that others finished for it.
TEST_F(SharesTest, WhoIsLateAgainAndAgainIsSlow) {
  for (int i = 0; i < 11; ++i) {
    Report(0, 10);
    shares_.WasLate(1, 0.12, 2);
    shares_.EndStep(step_++, 1);
  }
  EXPECT_TRUE(Look());
  EXPECT_THAT(Sizes(shares_), ElementsAre(14, 2)) << "60 ms per slice";
}

TEST_F(SharesTest, OneWhoComesIsTakenForAsFastAsTheOthers) {
  for (int i = 0; i < 11; ++i) Step(10, 30);
  EXPECT_TRUE(shares_.Divide(step_, {0, 1, 2}, false));
  EXPECT_THAT(Sizes(shares_), ElementsAre(10, 3, 3)) << "10, 30, and their median, the upper one";
  shares_.Forget(1);
  const auto back = shares_.Divide(step_ + 1, {0, 1}, false);
  EXPECT_THAT(Sizes(shares_), ElementsAre(8, 8));
  ASSERT_TRUE(back);
  EXPECT_THAT(TextOf(*back),
              AllOf(HasSubstr("rank 0 8 slices, rank 1 8"), HasSubstr("equal shares again")));
}

}  // namespace
}  // namespace muster
