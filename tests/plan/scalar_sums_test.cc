#include "common/plan/scalar_sums.h"

#include <gtest/gtest.h>

#include <cmath>

#include "common/plan/evaluation_sums.h"
#include "common/plan/metrics.h"

namespace muster {
namespace {

TEST(ScalarSumsTest, NamesAreShortAndPlain) {
  for (const char* name : {"a", "top-5/accuracy_2.x", "0", "/"}) EXPECT_TRUE(IsScalarName(name));
  for (const char* name : {"", " ", "a b", "a\n", "\xc3\xa4", "a:b", "\""})
    EXPECT_FALSE(IsScalarName(name)) << name;
  EXPECT_TRUE(IsScalarName(std::string(64, 'a')));
  EXPECT_FALSE(IsScalarName(std::string(65, 'a')));
  EXPECT_FALSE(IsScalarName(std::string_view("a\0", 2)));
}

// Otherwise a program's scalar would be shown as a metric.
TEST(ScalarSumsTest, NoScalarOfAProgramIsAMetric) {
  for (const Metric& metric : kMetrics) {
    EXPECT_EQ(MetricNamed(metric.name), &metric);
    EXPECT_FALSE(IsScalarName(metric.name)) << metric.name;
  }
}

TEST(ScalarSumsTest, TheMeanIsOverTheSamplesThatReportIt) {
  ScalarSums sums;
  AddScalarSums({{"a", {6, 4}}, {"b", {1, 4}}}, sums);
  AddScalarSums({}, sums);
  AddScalarSums({{"a", {3, 2}}}, sums);
  ASSERT_EQ(sums.size(), 2u);
  EXPECT_EQ(sums["a"].Mean(), 1.5);
  EXPECT_EQ(sums["b"].Mean(), 0.25);
}

TEST(ScalarSumsTest, MadeUpNamesTakeNoMemory) {
  ScalarSums sums;
  for (int i = 0; i < 100; ++i) AddScalarSums({{std::to_string(i), {1, 1}}}, sums);
  EXPECT_EQ(sums.size(), kMostScalars);
  AddScalarSums({{"0", {1, 1}}, {"new", {1, 1}}}, sums);
  EXPECT_EQ(sums["0"].samples, 2) << "known names still count";
  EXPECT_FALSE(sums.contains("new"));
}

TEST(ScalarSumsTest, ComparesBits) {
  const ScalarSums nan{{"a", {NAN, 1}}}, zero{{"a", {0, 1}}};
  EXPECT_TRUE(HaveSameBits({}, {}));
  EXPECT_TRUE(HaveSameBits(nan, nan));
  EXPECT_FALSE(HaveSameBits(zero, {{"a", {-0.0, 1}}}));
  EXPECT_FALSE(HaveSameBits(zero, {{"b", {0, 1}}}));
  EXPECT_FALSE(HaveSameBits(zero, {}));
}

TEST(ScalarSumsTest, BlocksAreAddedInOrder) {
  constexpr double kValues[] = {0.1, 1e17, 0.3, -1e17};
  EvaluationSums sums(14, 4, 1, false);
  for (const int64_t block : {3, 0, 2, 1}) {
    const int64_t samples = block == 3 ? 2 : 4;
    EvaluatedSamples result{.samples = samples};
    result.scalars["a"] = {kValues[block], samples};
    if (block == 2) result.scalars["of one"] = {2, samples};
    ASSERT_EQ(sums.Add(block, result), EvaluationSums::Added::kNew);
  }
  ScalarSums scalars = sums.Scores().scalars;
  EXPECT_EQ(scalars["a"].Mean(), (((0.1 + 1e17) + 0.3) - 1e17) / 14);
  EXPECT_EQ(scalars["of one"].Mean(), 0.5);
}

}  // namespace
}  // namespace muster
