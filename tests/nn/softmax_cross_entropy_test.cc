#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/nn/loss_run.h"

namespace muster {
namespace softmax_cross_entropy_test {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

LossRun RunLoss(const std::vector<float>& logits, const std::vector<int32_t>& labels,
                float scale = 1, bool input_is_relu = false, float smoothing = 0) {
  return RunLossLayer(fmt::format("softmax_cross_entropy {{ label_smoothing: {} }}", smoothing),
                      logits, labels, scale, input_is_relu);
}

TEST(SoftmaxCrossEntropyTest, MatchesTheReference) {
  for (const int64_t classes : {2, 3, 10, 17, 1000}) {
    for (const int64_t batch : {1, 2, 5}) {
      const auto logits = RandomFloats(batch * classes, 1);
      std::vector<int32_t> labels(batch);
      for (int64_t n = 0; n < batch; ++n) labels[n] = static_cast<int32_t>(n * 7 % classes);
      const auto got = RunLoss(logits, labels, 0.25f);
      EXPECT_NEAR(got.sums.loss,
                  reference::Loss(SoftmaxCrossEntropySpec{}, ToDoubles(logits), labels),
                  1e-6 * got.sums.loss);
      auto expected = reference::LossGradient(SoftmaxCrossEntropySpec{}, ToDoubles(logits), labels);
      for (double& g : expected) g *= 0.25;
      EXPECT_LE(RelativeL2(got.gradient, expected), 1e-6);
    }
  }
}

TEST(SoftmaxCrossEntropyTest, AddsUpManySamples) {
  constexpr size_t kSamples = 700;
  std::vector<float> logits;
  std::vector<int32_t> labels;
  double loss = 0;
  for (size_t n = 0; n < kSamples; ++n) {
    const float x = static_cast<float>(n) / kSamples;
    logits.insert(logits.end(), {0, x, -1, -1, -1, -1});
    labels.push_back(n % 2 == 0 ? 1 : 5);
    loss += std::log(1 + std::exp(x) + 4 * std::exp(-1.0)) - (n % 2 == 0 ? x : -1);
  }
  const LossRun got = RunLoss(logits, labels);
  EXPECT_NEAR(got.sums.loss, loss, 1e-6 * loss);
  EXPECT_EQ(got.sums.correct, 349);  // all even samples but the first, whose logit is also 0
  EXPECT_EQ(got.sums.metrics[kTop5], 350);
}

TEST(SoftmaxCrossEntropyTest, SmoothsLabels) {
  const auto logits = RandomFloats(4 * 7, 1);
  const std::vector<int32_t> labels = {0, 6, -1, 3};
  const LayerSpec spec = SoftmaxCrossEntropySpec{0.1f};
  const auto got = RunLoss(logits, labels, 0.5f, false, 0.1f);
  EXPECT_NEAR(got.sums.loss, reference::Loss(spec, ToDoubles(logits), labels), 1e-6);
  auto expected = reference::LossGradient(spec, ToDoubles(logits), labels);
  for (double& g : expected) g *= 0.5;
  EXPECT_LE(RelativeL2(got.gradient, expected), 1e-6);
  EXPECT_NE(got.sums.loss, RunLoss(logits, labels).sums.loss);
}

TEST(SoftmaxCrossEntropyTest, IsStableForExtremeLogits) {
  EXPECT_NEAR(RunLoss({1e30f, 0, -1e30f}, {0}).sums.loss, 0, 1e-12);
  EXPECT_NEAR(RunLoss({1e30f, 0, 0}, {1}).sums.loss, 1e30, 1e23);
  EXPECT_NEAR(RunLoss({-5000, -5001, -5002}, {0}).sums.loss,
              std::log(1 + std::exp(-1) + std::exp(-2)), 1e-6);
  const auto largest = RunLoss({3e38f, -3e38f}, {1});
  EXPECT_TRUE(std::isfinite(largest.sums.loss));
  EXPECT_EQ(largest.gradient, (std::vector<float>{1, -1}));
}

TEST(SoftmaxCrossEntropyTest, NeverHidesALogitThatIsNotFinite) {
  for (const float bad : {kNan, kInfinity, -kInfinity}) {
    for (const int32_t label : {0, 1, 2}) {
      for (size_t at = 0; at < 3; ++at) {
        std::vector<float> logits = {1, 2, 3};
        logits[at] = bad;
        EXPECT_FALSE(std::isfinite(RunLoss(logits, {label}).sums.loss)) << bad << label << at;
        logits.insert(logits.end(), {0, 1, 0});
        EXPECT_FALSE(std::isfinite(RunLoss(logits, {label, 1}).sums.loss));
        EXPECT_FALSE(std::isfinite(RunLoss(logits, {-1, 1}).sums.loss));
      }
    }
    EXPECT_FALSE(std::isfinite(RunLoss({bad, bad, bad}, {0}).sums.loss));
    EXPECT_EQ(RunLoss({bad, bad, bad}, {0}).sums.correct, 0);
  }
}

TEST(SoftmaxCrossEntropyTest, CountsUniqueMaximaAtTheLabel) {
  EXPECT_EQ(RunLoss({1, 2, 0, 2, 1, 0, 2, 2, 0, 0, 0, 0}, {1, 1, 0, 2}).sums.correct, 1);
}

TEST(SoftmaxCrossEntropyTest, CountsLabelsWithFewerThanFiveAsLarge) {
  const std::vector<float> logits = {1, 9, 8, 7, 6, 5, 0};
  EXPECT_EQ(RunLoss(logits, {1}).sums.metrics[kTop5], 1);
  EXPECT_EQ(RunLoss(logits, {5}).sums.metrics[kTop5], 1);
  EXPECT_EQ(RunLoss(logits, {0}).sums.metrics[kTop5], 0);
  EXPECT_EQ(RunLoss(logits, {-1}).sums.metrics[kTop5], 0);
  EXPECT_EQ(RunLoss({1, 1, 1, 1, 1}, {4}).sums.metrics[kTop5], 1);     // four others are equal
  EXPECT_EQ(RunLoss({1, 1, 1, 1, 1, 1}, {4}).sums.metrics[kTop5], 0);  // five
  EXPECT_EQ(RunLoss({kNan, 1, 2}, {1}).sums.metrics[kTop5], 0);
}

TEST(SoftmaxCrossEntropyTest, PredictsTheFirstLargestLogit) {
  EXPECT_EQ(RunLoss({1, 2, 0, 2, 2, 0, 0, 0, 3, 0, 3, 3}, {1, 1, -1, 1}).predictions,
            (std::vector<int32_t>{1, 0, 2, 1}));
  std::vector<float> many(70);
  for (const size_t place : {69, 35, 34, 5}) {
    many[place] = 1;
    EXPECT_EQ(RunLoss(many, {0}).predictions[0], static_cast<int32_t>(place));
  }
}

TEST(SoftmaxCrossEntropyTest, GivesASampleWithoutLabelNoWeight) {
  const auto run = RunLoss({1, 2, 0, 5, 1, 0}, {1, -1});
  EXPECT_EQ(run.sums.loss, RunLoss({1, 2, 0}, {1}).sums.loss);
  EXPECT_EQ(run.sums.correct, 1);
  for (size_t i = 3; i < 6; ++i) EXPECT_EQ(run.gradient[i], 0);
}

TEST(SoftmaxCrossEntropyTest, AppliesTheReluBefore) {
  const auto plain = RunLoss({0, 2, 0.5f}, {1}), masked = RunLoss({0, 2, 0.5f}, {1}, 1, true);
  EXPECT_EQ(masked.gradient[0], 0);
  EXPECT_EQ(masked.gradient[1], plain.gradient[1]);
  EXPECT_EQ(masked.gradient[2], plain.gradient[2]);
}

}  // namespace softmax_cross_entropy_test
}  // namespace muster
