// The statistics of a series of runs.
#include "cli/job/repeat.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace muster {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(SpreadTest, IsThatOfASample) {
  const std::vector<double> values{2, 4, NAN, 4, 6};
  const Spread spread = SpreadOf(values);
  EXPECT_EQ(spread.count, 4);
  EXPECT_DOUBLE_EQ(spread.mean, 4);
  EXPECT_DOUBLE_EQ(spread.deviation, std::sqrt(8.0 / 3));
}

TEST(SpreadTest, OfOneValueAndOfNone) {
  const std::vector<double> one{5}, none{NAN};
  EXPECT_DOUBLE_EQ(SpreadOf(one).mean, 5);
  EXPECT_TRUE(std::isnan(SpreadOf(one).deviation));
  EXPECT_EQ(SpreadOf(none).count, 0);
  EXPECT_TRUE(std::isnan(SpreadOf(none).mean));
}

events::Summary Summary(double accuracy) {
  events::Summary summary;
  summary.mutable_test()->set_accuracy(accuracy);
  return summary;
}

events::Summary Summary(double accuracy, double images_per_second) {
  events::Summary summary = Summary(accuracy);
  summary.mutable_measured()->set_images_per_second(images_per_second);
  summary.set_steps(1200);
  return summary;
}

std::vector<RepeatedRun> Runs() {
  return {{.seed = 3, .dir = "x/seed-3", .summary = Summary(0.5, 1000)},
          {.seed = 4, .dir = "x/seed-4", .summary = Summary(0.7, 1200)},
          {.seed = 5, .dir = "x/seed-5", .exit_code = 6, .summary = Summary(0.1)}};
}

TEST(RepeatTest, TheTableHasEachRunAndTheSpreadOfTheCompletedOnes) {
  const std::vector<std::string> lines = RepeatLines(Runs());
  ASSERT_EQ(lines.size(), 8u);
  EXPECT_THAT(lines[2], HasSubstr("50.00 %"));
  EXPECT_THAT(lines[3], HasSubstr("x/seed-4"));
  EXPECT_THAT(lines[4], HasSubstr("exit code 6"));
  EXPECT_EQ(lines[6], "  test accuracy  60.00 % ± 14.14 % (2 runs)");
  EXPECT_EQ(lines[7], "  samples/s      1,100 ± 141 (2 runs)");
}

TEST(RepeatTest, TheFileHasTheSame) {
  const nlohmann::json json = nlohmann::json::parse(RepeatJson(Runs()));
  EXPECT_EQ(json["runs"].size(), 3u);
  EXPECT_EQ(json["runs"][0]["seed"], 3);
  EXPECT_EQ(json["runs"][2]["exit_code"], 6);
  EXPECT_DOUBLE_EQ(json["test_accuracy"]["mean"], 0.6);
  EXPECT_NEAR(json["test_accuracy"]["deviation"].get<double>(), 0.1 * std::sqrt(2), 1e-12);
  EXPECT_EQ(json["images_per_second"]["runs"], 2);
}

TEST(RepeatTest, RunsWithoutATestSet) {
  std::vector<RepeatedRun> runs = Runs();
  for (RepeatedRun& run : runs) {
    *run.summary->mutable_validation() = run.summary->test();
    run.summary->clear_test();
  }
  EXPECT_THAT(RepeatLines(runs)[0], HasSubstr("best val."));
  EXPECT_EQ(RepeatLines(runs)[6], "  validation accuracy  60.00 % ± 14.14 % (2 runs)");
  const nlohmann::json json = nlohmann::json::parse(RepeatJson(runs));
  EXPECT_DOUBLE_EQ(json["validation_accuracy"]["mean"], 0.6);
  EXPECT_EQ(json["runs"][0]["validation_accuracy"], 0.5);
  EXPECT_FALSE(json.contains("test_accuracy"));
}

TEST(RepeatTest, RunsOnValuesHaveALoss) {
  std::vector<RepeatedRun> runs = Runs();
  for (RepeatedRun& run : runs) {
    run.summary->mutable_test()->set_loss(run.summary->test().accuracy());
    run.summary->mutable_test()->clear_accuracy();
    run.summary->set_best_step(40);
  }
  const std::vector<std::string> lines = RepeatLines(runs);
  EXPECT_THAT(lines[2], AllOf(HasSubstr("0.5000"), HasSubstr("step 40")));
  EXPECT_EQ(lines[6], "  test loss  0.6000 ± 0.1414 (2 runs)");
  const nlohmann::json json = nlohmann::json::parse(RepeatJson(runs));
  EXPECT_DOUBLE_EQ(json["test_loss"]["mean"], 0.6);
  EXPECT_FALSE(json.contains("test_accuracy"));
}

TEST(RepeatTest, ALossThatIsNotFiniteIsShown) {
  std::vector<RepeatedRun> runs = Runs();
  for (RepeatedRun& run : runs) {
    run.summary->mutable_test()->clear_accuracy();
    run.summary->mutable_test()->set_loss(&run == &runs[0] ? NAN : 0.5);
  }
  EXPECT_THAT(RepeatLines(runs)[2], HasSubstr(" nan "));
  EXPECT_TRUE(nlohmann::json::parse(RepeatJson(runs))["runs"][0]["test_loss"].is_null());
}

TEST(RepeatTest, NoRunAtAll) {
  EXPECT_THAT(RepeatLines({}).back(), HasSubstr("-"));
  EXPECT_TRUE(nlohmann::json::parse(RepeatJson({}))["test_accuracy"]["mean"].is_null());
}

}  // namespace
}  // namespace muster
