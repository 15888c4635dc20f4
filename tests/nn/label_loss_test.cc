// Common features of all losses: class weights and mixed samples.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/nn/loss_run.h"

namespace muster {
namespace {

const std::vector<float> kLogits = {1, -0.5f, 0.25f, 2, 0, -1, 0.5f, 0.5f, -2, 0, 1.5f, 1};
const std::vector<int32_t> kLabels = {0, 2, 1, 2};
const std::vector<int32_t> kLabelsBefore = {2, 0, 2, 1};  // the other sample in each mix
const std::vector<float> kWeights = {0.5f, 2, 3};

class LabelLossTest : public testing::TestWithParam<const char*> {
 protected:
  LossRun Run(const std::vector<int32_t>& labels, const std::vector<float>& weights = {},
              float share = 1, const std::vector<float>& logits = kLogits) const {
    return RunLossLayer(GetParam(), logits, labels, 0.5f, false, weights, share);
  }
  // The loss and gradient of sample n alone.
  LossRun OfSample(size_t n, int32_t label) const {
    const auto begin = kLogits.begin() + static_cast<std::ptrdiff_t>(3 * n);
    return Run({label}, {}, 1, {begin, begin + 3});
  }
  void ExpectSums(const LossRun& got, const std::vector<float>& weights, float share) const {
    double loss = 0;
    for (size_t n = 0; n < kLabels.size(); ++n) {
      const LossRun own = OfSample(n, kLabels[n]), before = OfSample(n, kLabelsBefore[n]);
      const double of_own = share * weights[static_cast<size_t>(kLabels[n])];
      const double of_before = (1 - share) * weights[static_cast<size_t>(kLabelsBefore[n])];
      loss += of_own * own.sums.loss + of_before * before.sums.loss;
      for (size_t j = 0; j < 3; ++j) {
        EXPECT_NEAR(got.gradient[3 * n + j],
                    of_own * own.gradient[j] + of_before * before.gradient[j], 1e-6);
      }
    }
    EXPECT_NEAR(got.sums.loss, loss, 1e-6);
  }
};

TEST_P(LabelLossTest, MultipliesByTheWeightOfTheClass) {
  ExpectSums(Run(kLabels, kWeights), kWeights, 1);
  EXPECT_EQ(Run(kLabels, kWeights).sums.correct, Run(kLabels).sums.correct);
}

TEST_P(LabelLossTest, WeightsOf1ChangeNoBit) {
  const LossRun plain = Run(kLabels), weighted = Run(kLabels, {1, 1, 1});
  EXPECT_EQ(weighted.sums.loss, plain.sums.loss);
  EXPECT_EQ(weighted.gradient, plain.gradient);
}

TEST_P(LabelLossTest, MixesTheLabelOfTheSampleBefore) {
  const LossRun mixed = Run(kLabels, {}, 0.75f);
  ExpectSums(mixed, {1, 1, 1}, 0.75f);
  EXPECT_EQ(mixed.sums.correct, Run(kLabels).sums.correct);
  EXPECT_EQ(mixed.predictions, Run(kLabels).predictions);
}

TEST_P(LabelLossTest, EachLabelOfAMixedSampleHasItsOwnWeight) {
  ExpectSums(Run(kLabels, kWeights, 0.75f), kWeights, 0.75f);
}

TEST_P(LabelLossTest, TheGradientIsThatOfTheLoss) {
  const LossRun run = Run(kLabels, kWeights, 0.625f);
  constexpr float kStep = 1.0f / 256;
  for (size_t i = 0; i < kLogits.size(); ++i) {
    double losses[2];
    for (const int side : {0, 1}) {
      std::vector<float> logits = kLogits;
      logits[i] += side == 0 ? -kStep : kStep;
      losses[side] = Run(kLabels, kWeights, 0.625f, logits).sums.loss;
    }
    EXPECT_NEAR(run.gradient[i], 0.5 * (losses[1] - losses[0]) / (2 * kStep), 1e-4) << i;
  }
}

TEST_P(LabelLossTest, ASampleWithoutLabelCountsForNothingMixedOrNot) {
  const LossRun run = Run({0, -1, 1, 2}, kWeights, 0.75f);
  const LossRun before = OfSample(1, 0), own = OfSample(2, 1);
  for (size_t j = 0; j < 3; ++j) {
    EXPECT_NEAR(run.gradient[3 + j], 0.25 * 0.5 * before.gradient[j], 1e-6);
    EXPECT_NEAR(run.gradient[6 + j], 0.75 * 2 * own.gradient[j], 1e-6);
  }
}

INSTANTIATE_TEST_SUITE_P(Losses, LabelLossTest,
                         testing::Values("softmax_cross_entropy {}",
                                         "softmax_cross_entropy { label_smoothing: 0.25 }",
                                         "mean_squared_error {}", "sigmoid_cross_entropy {}"));

// PyTorch 2.15: functional.cross_entropy(x, labels, weight, reduction="sum"), and
// binary_cross_entropy_with_logits(x, one_hot, weight[labels][:, None], reduction="sum") / 3.
TEST(LabelLossWeights, AsInPyTorch) {
  EXPECT_NEAR(
      RunLossLayer("softmax_cross_entropy {}", kLogits, kLabels, 1, false, kWeights).sums.loss,
      14.552657336, 1e-6);
  EXPECT_NEAR(
      RunLossLayer("sigmoid_cross_entropy {}", kLogits, kLabels, 1, false, kWeights).sums.loss,
      8.160093360, 1e-6);
}

}  // namespace
}  // namespace muster
