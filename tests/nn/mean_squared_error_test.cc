#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "tests/nn/loss_run.h"

namespace muster {
namespace {

LossRun RunLoss(const std::vector<float>& logits, const std::vector<int32_t>& labels,
                float scale = 1, bool input_is_relu = false) {
  return RunLossLayer("mean_squared_error {}", logits, labels, scale, input_is_relu);
}

TEST(MeanSquaredErrorTest, IsTheMeanOverTheClasses) {
  const auto run = RunLoss({0.5f, 1, 0, 0, 0, 0}, {1, 2}, 3);
  EXPECT_NEAR(run.sums.loss, 0.25 / 3 + 1.0 / 3, 1e-7);
  EXPECT_EQ(run.gradient, (std::vector<float>{1, 0, 0, 0, 0, -2}));  // 3 * 2 (x - t) / 3
  EXPECT_EQ(run.sums.correct, 1);
  EXPECT_EQ(run.sums.metrics[kTop5], 2);
  EXPECT_EQ(run.predictions, (std::vector<int32_t>{1, 0}));
}

TEST(MeanSquaredErrorTest, MatchesTheReference) {
  for (const int64_t classes : {2, 10, 1000}) {
    const auto logits = RandomFloats(5 * classes, 1);
    const std::vector<int32_t> labels = {0, -1, 1, 0, static_cast<int32_t>(classes) - 1};
    const auto got = RunLoss(logits, labels, 0.25f);
    const LayerSpec spec = MeanSquaredErrorSpec{};
    EXPECT_NEAR(got.sums.loss, reference::Loss(spec, ToDoubles(logits), labels),
                1e-6 * got.sums.loss);
    auto expected = reference::LossGradient(spec, ToDoubles(logits), labels);
    for (double& g : expected) g *= 0.25;
    EXPECT_LE(RelativeL2(got.gradient, expected), 1e-6);
  }
}

// With a single output.
TEST(MeanSquaredErrorTest, OfValues) {
  const auto bits = [](float value) { return std::bit_cast<int32_t>(value); };
  const auto run = RunLoss({1, -2, 0.5f, 3}, {bits(3), bits(-0.0f), -1, bits(-1e-38f)}, 0.5f);
  EXPECT_NEAR(run.sums.loss, 4 + 4 + 0 + 9, 1e-6);
  EXPECT_EQ(run.gradient, (std::vector<float>{-2, -2, 0, 3}));  // 0.5 * 2 (x - t)
  EXPECT_EQ(run.sums.correct, 0);
  EXPECT_EQ(RunLoss({0, 2}, {bits(1), bits(1)}, 1, true).gradient, (std::vector<float>{0, 2}));
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    for (const int32_t label : {-1, bits(0), bits(2)}) {
      EXPECT_FALSE(std::isfinite(RunLoss({bad, 1}, {label, label}).sums.loss));
    }
  }
}

TEST(MeanSquaredErrorTest, AppliesTheReluBefore) {
  const auto run = RunLoss({0, 2, 0.5f, 0}, {0}, 1, true);
  EXPECT_EQ(run.gradient, (std::vector<float>{0, 1, 0.25f, 0}));
}

TEST(MeanSquaredErrorTest, NeverHidesALogitThatIsNotFinite) {
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    for (const int32_t label : {-1, 0, 1}) {
      EXPECT_FALSE(std::isfinite(RunLoss({bad, 1}, {label}).sums.loss));
      EXPECT_EQ(RunLoss({bad, 1}, {label}).sums.correct, 0);
    }
  }
}

}  // namespace
}  // namespace muster
