#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "cli/evaluate/predict_command.h"

namespace muster {
namespace {

TEST(Prediction, ProbabilitiesInDoublePrecisionTheMostLikelyFirst) {
  const std::array<float, 3> logits{1, 3, 2};
  EXPECT_TRUE(IsRight(logits, 1));
  EXPECT_FALSE(IsRight(logits, 2));
  const std::vector<Candidate> top = MostLikely(logits, ProbabilitiesBy::kSoftmax, 2);
  ASSERT_EQ(top.size(), 2u);
  const double sum = std::exp(-2.0) + 1 + std::exp(-1.0);
  EXPECT_EQ(top[0].number, 1);
  EXPECT_DOUBLE_EQ(top[0].probability, 1 / sum);
  EXPECT_EQ(top[1].number, 2);
  EXPECT_DOUBLE_EQ(top[1].probability, std::exp(-1.0) / sum);
}

TEST(Prediction, LargeOutputsDoNotOverflow) {
  const std::array<float, 2> logits{3e38F, -3e38F};
  EXPECT_FALSE(IsRight(logits, 1));
  const std::vector<Candidate> top = MostLikely(logits, ProbabilitiesBy::kSoftmax, 5);
  ASSERT_EQ(top.size(), 2u);
  EXPECT_EQ(top[0].probability, 1);
  EXPECT_EQ(top[1].probability, 0);
}

// The same rule as in evaluations: a tie is wrong, and the lower class number is predicted.
TEST(Prediction, OfEquals) {
  const std::array<float, 3> logits{0, 5, 5};
  EXPECT_FALSE(IsRight(logits, 1));
  EXPECT_EQ(MostLikely(logits, ProbabilitiesBy::kSoftmax, 1)[0].number, 1);
}

TEST(Prediction, OutputsThatAreProbabilitiesStay) {
  const std::array<float, 2> outputs{0.25F, 0.75F};
  EXPECT_EQ(MostLikely(outputs, ProbabilitiesBy::kNothing, 1)[0].probability, 0.75);
}

TEST(Prediction, ClassesThatDoNotExcludeOneAnother) {
  const std::array<float, 2> logits{-1, 3};
  const std::vector<Candidate> top = MostLikely(logits, ProbabilitiesBy::kSigmoid, 2);
  EXPECT_EQ(top[0].number, 1);
  EXPECT_DOUBLE_EQ(top[0].probability, 1 / (1 + std::exp(-3.0)));
  EXPECT_DOUBLE_EQ(top[1].probability, 1 / (1 + std::exp(1.0)));
}

}  // namespace
}  // namespace muster
