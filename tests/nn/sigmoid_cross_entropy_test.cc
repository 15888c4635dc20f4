#include <gtest/gtest.h>

#include <cmath>

#include "tests/nn/loss_run.h"

namespace muster {
namespace sigmoid_cross_entropy_test {

LossRun RunLoss(const std::vector<float>& logits, const std::vector<int32_t>& labels,
                float scale = 1, bool input_is_relu = false) {
  return RunLossLayer("sigmoid_cross_entropy {}", logits, labels, scale, input_is_relu);
}

TEST(SigmoidCrossEntropyTest, IsTheMeanOverTheOutputs) {
  const auto run = RunLoss({0, 0, 0, 0}, {1, 0}, 8);
  EXPECT_NEAR(run.sums.loss, 2 * std::log(2.0), 1e-12);
  EXPECT_EQ(run.gradient, (std::vector<float>{2, -2, -2, 2}));  // 8 (1/2 - t) / 2
}

TEST(SigmoidCrossEntropyTest, MatchesTheReference) {
  for (const int64_t outputs : {1, 2, 10, 1000}) {
    const auto logits = RandomFloats(5 * outputs, 1);
    const auto last = static_cast<int32_t>(std::max<int64_t>(1, outputs - 1));
    const std::vector<int32_t> labels = {0, -1, 1, 0, last};
    const auto got = RunLoss(logits, labels, 0.25f);
    const LayerSpec spec = SigmoidCrossEntropySpec{};
    EXPECT_NEAR(got.sums.loss, reference::Loss(spec, ToDoubles(logits), labels),
                1e-6 * got.sums.loss);
    auto expected = reference::LossGradient(spec, ToDoubles(logits), labels);
    for (double& g : expected) g *= 0.25;
    EXPECT_LE(RelativeL2(got.gradient, expected), 1e-6);
  }
}

TEST(SigmoidCrossEntropyTest, TakesOneLogitForThatOfClass1) {
  const auto run = RunLoss({2, -2, 2, -2, 0, 0, 3}, {1, 1, 0, 0, 0, 1, -1});
  const double right = std::log1p(std::exp(-2.0));
  EXPECT_NEAR(run.sums.loss, 2 * right + 2 * (right + 2) + 2 * std::log(2.0), 1e-6);
  EXPECT_EQ(run.predictions, (std::vector<int32_t>{1, 0, 1, 0, 0, 0, 1}));
  EXPECT_EQ(run.sums.correct, 2);  // ties do not count
  EXPECT_EQ(run.sums.metrics[kTop5], 6);
  const auto sigmoid = static_cast<float>(1 / (1 + std::exp(-2.0)));
  EXPECT_NEAR(run.gradient[0], sigmoid - 1, 1e-7);
  EXPECT_NEAR(run.gradient[2], sigmoid, 1e-7);
  EXPECT_EQ(run.gradient[6], 0);
}

TEST(SigmoidCrossEntropyTest, IsStableForExtremeLogits) {
  EXPECT_EQ(RunLoss({3e38f}, {1}).sums.loss, 0);
  EXPECT_EQ(RunLoss({3e38f}, {1}).gradient, std::vector<float>{0});
  EXPECT_NEAR(RunLoss({3e38f}, {0}).sums.loss, 3e38, 1e32);
  EXPECT_EQ(RunLoss({-3e38f}, {1}).gradient, std::vector<float>{-1});
}

TEST(SigmoidCrossEntropyTest, AppliesTheReluBefore) {
  const auto plain = RunLoss({0, 2}, {1}), masked = RunLoss({0, 2}, {1}, 1, true);
  EXPECT_EQ(masked.gradient, (std::vector<float>{0, plain.gradient[1]}));
}

TEST(SigmoidCrossEntropyTest, NeverHidesALogitThatIsNotFinite) {
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    for (const int32_t label : {-1, 0, 1}) {
      for (const std::vector<float>& logits : {std::vector<float>{bad}, {bad, 1}}) {
        EXPECT_FALSE(std::isfinite(RunLoss(logits, {label}).sums.loss));
        EXPECT_EQ(RunLoss(logits, {label}).sums.correct, 0);
        EXPECT_EQ(RunLoss(logits, {label}).sums.metrics[kTop5], 0);
      }
    }
  }
}

}  // namespace sigmoid_cross_entropy_test
}  // namespace muster
