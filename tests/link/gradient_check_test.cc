// These tests say who may send which gradient.
#include "common/link/gradient_check.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "common/link/wire_values.h"

namespace muster {
namespace gradient_check_test {

using ::testing::HasSubstr;

constexpr TreeNode kLeft{1, 0}, kRight{1, 1}, kWhole{2, 0};

StepPlan PlanOf(int64_t slices, int64_t batch = 8) {
  return {.train_samples = 80, .global_batch = batch, .total_steps = 10, .slices = slices};
}

wire::GradientPart SumOf(const TreeNode& node, const std::vector<TreeNode>& parts) {
  wire::GradientPart sum;
  *sum.mutable_subtree() = SubtreeOf(node);
  for (const TreeNode& part : parts) {
    wire::AddedPart& added = *sum.add_added();
    added.set_rank(static_cast<uint32_t>(sum.added_size()) - 1);
    *added.mutable_subtree() = SubtreeOf(part);
  }
  return sum;
}

// Ranks 0 to 2 are behind one relay, the others are not.
std::string Check(const wire::GradientPart& part, const StepPlan& plan = PlanOf(4),
                  uint32_t sender = 0) {
  return CheckGradient(part, sender, plan, [](uint32_t rank) { return rank < 3; });
}
bool AddsUp(const StepPlan& plan, const TreeNode& node, const std::vector<TreeNode>& parts) {
  return Check(SumOf(node, parts), plan).empty();
}

TEST(GradientCheckTest, TheSubtreesOfASumMakeUpItsOwn) {
  const StepPlan plan = PlanOf(4);
  EXPECT_TRUE(AddsUp(plan, kWhole, {kLeft, kRight}));
  EXPECT_TRUE(AddsUp(plan, kWhole, {kLeft, {0, 2}, {0, 3}}));
  EXPECT_TRUE(AddsUp(plan, kWhole, {kWhole}));
  EXPECT_TRUE(AddsUp(plan, kRight, {{0, 2}, {0, 3}}));
  EXPECT_FALSE(AddsUp(plan, kWhole, {kRight, kLeft})) << "the wrong order";
  EXPECT_FALSE(AddsUp(plan, kWhole, {kLeft, {0, 3}})) << "slice 2 is missing";
  EXPECT_FALSE(AddsUp(plan, kWhole, {kLeft, {0, 1}, kRight})) << "slice 1 comes twice";
  EXPECT_FALSE(AddsUp(plan, kWhole, {kLeft, kLeft, kRight}));
  EXPECT_FALSE(AddsUp(plan, kWhole, {kLeft}));
  EXPECT_FALSE(AddsUp(plan, kWhole, {kRight}));
  EXPECT_FALSE(AddsUp(plan, kLeft, {kLeft, kRight})) << "too much";
  EXPECT_FALSE(AddsUp(plan, kLeft, {kRight}));
}

TEST(GradientCheckTest, SubtreesHaveSlices) {
  const StepPlan plan = PlanOf(4);
  constexpr TreeNode kBeyond{1, 2}, kAbove{3, 0};
  EXPECT_FALSE(AddsUp(plan, kAbove, {kLeft, kRight}));
  EXPECT_FALSE(AddsUp(plan, kWhole, {kAbove}));
  EXPECT_FALSE(AddsUp(plan, {UINT32_MAX, UINT32_MAX}, {kWhole}));
  EXPECT_FALSE(AddsUp(plan, kWhole, {kLeft, {UINT32_MAX, 1}, kRight}));
  EXPECT_FALSE(AddsUp(plan, kBeyond, {kBeyond}));
  EXPECT_FALSE(AddsUp(plan, {2, UINT32_MAX}, {}));
  EXPECT_FALSE(AddsUp(plan, kWhole, {kLeft, kRight, kBeyond}));
  EXPECT_FALSE(AddsUp(plan, kWhole, {kLeft, kRight, {0, UINT32_MAX}}));
  const StepPlan five = PlanOf(5);  // slice 4 has no neighbour
  EXPECT_TRUE(AddsUp(five, {3, 0}, {kLeft, kRight, {0, 4}}));
  EXPECT_TRUE(AddsUp(five, {3, 0}, {kWhole, {2, 1}}));
  EXPECT_TRUE(AddsUp(five, {2, 1}, {{0, 4}}));
  EXPECT_FALSE(AddsUp(five, {3, 0}, {kWhole, {0, 4}, {0, 5}}));
}

TEST(GradientCheckTest, OnlyARelaySpeaksForOthers) {
  EXPECT_EQ(Check(SumOf(kLeft, {{0, 0}, {0, 1}})), "");
  wire::GradientPart sum = SumOf(kLeft, {{0, 0}, {0, 1}});
  sum.mutable_added(1)->set_rank(3);
  EXPECT_THAT(Check(sum), HasSubstr("of rank 3, which has another connection"));
  // Its first gradient is the sender's own.
  EXPECT_THAT(Check(SumOf(kLeft, {{0, 0}, {0, 1}}), PlanOf(4), 1), HasSubstr("begins with"));
  EXPECT_THAT(Check(SumOf(kLeft, {kLeft}), PlanOf(4), 1), HasSubstr("begins with"));
}

// Otherwise it would count as zero.
TEST(GradientCheckTest, OnlyWithoutSamplesIsAGradientEmpty) {
  const StepPlan plan = PlanOf(4, 2);  // the slices 1 and 3 have one sample each
  for (const TreeNode& node : {TreeNode{0, 0}, {0, 1}, {0, 2}, {0, 3}, kLeft, kRight, kWhole}) {
    const bool has_samples = node.level > 0 || node.index % 2 == 1;
    for (const bool empty : {false, true}) {
      wire::GradientPart part = SumOf(node, {});
      part.set_empty(empty);
      EXPECT_EQ(Check(part, plan).empty(), !empty || !has_samples)
          << node.level << "." << node.index;
    }
  }
}

TEST(GradientCheckTest, StepsAreThoseOfTheRun) {
  wire::GradientPart part = SumOf(kLeft, {});
  for (const int64_t step : {int64_t{-1}, INT64_MIN, int64_t{10}, INT64_MAX}) {
    part.set_step(step);
    EXPECT_THAT(Check(part), HasSubstr("a gradient for step")) << step;
  }
  part.set_step(9);
  EXPECT_EQ(Check(part), "");
}

TEST(GradientCheckTest, TimesAreNumbers) {
  wire::StepTimes times;
  times.set_compute_ms(12);
  EXPECT_EQ(CheckTimes(times), "");
  for (const double value : {-1.0, std::nan(""), HUGE_VAL, 1e300}) {
    wire::StepTimes others = times;
    others.set_input_ms(value);
    EXPECT_NE(CheckTimes(others), "") << value;
  }
}

}  // namespace gradient_check_test
}  // namespace muster
