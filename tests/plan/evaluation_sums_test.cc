#include "common/plan/evaluation_sums.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "common/plan/metrics.h"

namespace muster {
namespace {

using Added = EvaluationSums::Added;

TEST(EvaluationSumsTest, TheSameBitsInAnyOrder) {
  constexpr std::array<double, 4> kLosses{0.1, 1e17, 0.3, -1e17};
  const auto loss_of = [&](const std::array<size_t, 4>& order) {
    EvaluationSums sums(14, 4, 10, false);
    for (const size_t block : order) {
      EXPECT_FALSE(sums.Complete());
      EXPECT_EQ(sums.Add(static_cast<int64_t>(block),
                         {.samples = block == 3 ? 2 : 4, .loss = kLosses[block]}),
                Added::kNew);
    }
    EXPECT_TRUE(sums.Complete());
    return sums.Scores().loss;
  };
  const double in_order = loss_of({0, 1, 2, 3});
  EXPECT_EQ(in_order, (((0.1 + 1e17) + 0.3) - 1e17) / 14);
  EXPECT_EQ(loss_of({3, 1, 0, 2}), in_order);
}

TEST(EvaluationSumsTest, ABlockThatCannotBeIsRefused) {
  EvaluationSums sums(6, 4, 10, false);
  EXPECT_EQ(sums.Add(-1, {.samples = 4}), Added::kUnexpected);
  EXPECT_EQ(sums.Add(2, {.samples = 2}), Added::kUnexpected);
  EXPECT_EQ(sums.Add(0, {.samples = 3}), Added::kUnexpected);
  EXPECT_EQ(sums.Add(1, {.samples = 2, .correct = 3}), Added::kUnexpected);
  EXPECT_EQ(sums.Add(1, {.samples = 2, .correct = -1}), Added::kUnexpected);
  EXPECT_EQ(sums.Add(1, {.samples = 2, .metrics = std::array<double, kMetricCount + 1>()}),
            Added::kUnexpected);
  for (const double top5 : {-1.0, 3.0, double{NAN}}) {
    EXPECT_EQ(sums.Add(1, {.samples = 2, .metrics = std::array{top5}}), Added::kUnexpected);
  }
  EXPECT_EQ(sums.Add(1, {.samples = 2, .correct = 1}), Added::kNew);
  EXPECT_EQ(sums.Add(1, {.samples = 2}), Added::kHere);
  EXPECT_EQ(sums.done(), 1);
}

TEST(EvaluationSumsTest, FiveClassesHaveNoTopFiveAndValuesNoAccuracy) {
  EvaluationSums classes(4, 4, 5, false), six(4, 4, 6, false), values(4, 4, 1, false);
  std::array<double, kMetricCount> metrics{};
  metrics[kTop5] = 3;
  for (EvaluationSums* const sums : {&classes, &six}) {
    const EvaluatedSamples block{.samples = 4, .loss = 2, .correct = 1, .metrics = metrics};
    ASSERT_EQ(sums->Add(0, block), Added::kNew);
    EXPECT_EQ(sums->Scores().scalars.contains("top 5"), sums == &six);
  }
  EXPECT_EQ(six.Scores().scalars["top 5"].Mean(), 0.75);
  EXPECT_EQ(classes.Scores().accuracy, 0.25);
  ASSERT_EQ(values.Add(0, {.samples = 4, .loss = 2}), Added::kNew);
  EXPECT_EQ(values.Scores().accuracy, std::nullopt);
}

TEST(EvaluationSumsTest, PredictionsMakeTheConfusionMatrix) {
  using Numbers = std::array<uint32_t, 3>;
  constexpr Numbers kLabels{0, 1, 2}, kPredicted{0, 2, 2}, kNoClass{0, 1, 3};
  EvaluationSums sums(5, 3, 3, true);
  EXPECT_EQ(sums.Add(0, {.samples = 3, .labels = kLabels}), Added::kUnexpected);
  EXPECT_EQ(sums.Add(0, {.samples = 3, .labels = kNoClass, .predicted = kPredicted}),
            Added::kUnexpected);
  EXPECT_EQ(sums.Add(0, {.samples = 3, .labels = kLabels, .predicted = kNoClass}),
            Added::kUnexpected);
  EXPECT_EQ(sums.Add(0, {.samples = 3, .labels = kLabels, .predicted = kPredicted}), Added::kNew);
  constexpr std::array<uint32_t, 2> kMoreLabels{1, 1}, kMorePredicted{2, 0};
  EXPECT_EQ(sums.Add(1, {.samples = 2, .labels = kMoreLabels, .predicted = kMorePredicted}),
            Added::kNew);
  EXPECT_EQ(sums.confusion_matrix()->Csv({}),
            "label,0,1,2,total\n"
            "0,1,0,0,1\n"
            "1,1,0,2,3\n"
            "2,0,0,1,1\n"
            "total,2,0,3,5\n");
  EXPECT_EQ(sums.confusion_matrix()->Csv({"cat", "a,\"b\"", "dog"}),
            "label,cat,\"a,\"\"b\"\"\",dog,total\n"
            "cat,1,0,0,1\n"
            "\"a,\"\"b\"\"\",1,0,2,3\n"
            "dog,0,0,1,1\n"
            "total,2,0,3,5\n");
}

}  // namespace
}  // namespace muster
