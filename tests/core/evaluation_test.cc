// Evaluations: what is summed, what is refused, and which one was the best.
#include "ps/evaluation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "ps/confusion_matrix.h"
#include "ps/progress.h"

namespace muster {
namespace {

using ::testing::StartsWith;

wire::EvaluatedBlock Block(uint32_t number, int64_t samples, double loss, int64_t correct,
                           int64_t correct_top5, const std::vector<uint32_t>& labels = {},
                           const std::vector<uint32_t>& predicted = {}) {
  wire::EvaluatedBlock block;
  block.set_version(7);
  block.set_block(number);
  block.set_samples(samples);
  block.set_loss(loss);
  block.set_correct(correct);
  block.set_correct_top5(correct_top5);
  for (const uint32_t label : labels) block.add_label(label);
  for (const uint32_t class_number : predicted) block.add_predicted(class_number);
  return block;
}

TEST(EvaluationTest, SumsBlocksOfAllRanks) {
  Evaluation evaluation(7, 10, 4, 2, 10, false);  // blocks of 4, 4 and 2; rank 0 has the first
  EXPECT_FALSE(evaluation.Add(0, Block(1, 4, 1, 1, 2)));  // rank 1's
  EXPECT_TRUE(evaluation.Add(0, Block(0, 4, 1, 1, 2)));
  EXPECT_FALSE(evaluation.Add(0, Block(0, 4, 1, 1, 2)));  // again
  EXPECT_TRUE(evaluation.Add(1, Block(1, 4, 2, 3, 4)));
  EXPECT_FALSE(evaluation.Complete());
  EXPECT_FALSE(evaluation.Add(1, Block(2, 4, 0, 0, 0)));  // it has 2 samples
  EXPECT_FALSE(evaluation.Add(1, Block(2, 2, 0, 3, 0)));
  EXPECT_FALSE(evaluation.Add(1, Block(2, 2, 0, 0, 3)));
  EXPECT_FALSE(evaluation.Add(1, Block(2, 2, 0, -1, 0)));
  wire::EvaluatedBlock other_version = Block(2, 2, 0.5, 1, 2);
  other_version.set_version(8);
  EXPECT_FALSE(evaluation.Add(1, other_version));
  EXPECT_TRUE(evaluation.Add(1, Block(2, 2, 0.5, 1, 2)));
  ASSERT_TRUE(evaluation.Complete());
  const EvaluationResult result = evaluation.Result();
  EXPECT_EQ(result.version, 7);
  EXPECT_DOUBLE_EQ(result.loss, 0.35);
  EXPECT_DOUBLE_EQ(result.accuracy, 0.5);
  EXPECT_DOUBLE_EQ(result.top5_accuracy.value(), 0.8);
  EXPECT_EQ(evaluation.confusion_matrix(), nullptr);
}

TEST(EvaluationTest, FiveClassesHaveNoTopFive) {
  Evaluation evaluation(7, 4, 4, 1, 5, false);
  ASSERT_TRUE(evaluation.Add(0, Block(0, 4, 1, 1, 4)));
  EXPECT_FALSE(evaluation.Result().top5_accuracy.has_value());
}

TEST(EvaluationTest, PredictionsMakeTheConfusionMatrix) {
  Evaluation evaluation(7, 5, 3, 1, 3, true);
  EXPECT_FALSE(evaluation.Add(0, Block(0, 3, 0, 1, 0)));                        // none
  EXPECT_FALSE(evaluation.Add(0, Block(0, 3, 0, 1, 0, {0, 1, 2}, {0, 1})));     // too few
  EXPECT_FALSE(evaluation.Add(0, Block(0, 3, 0, 1, 0, {0, 1, 3}, {0, 1, 2})));  // no class
  EXPECT_FALSE(evaluation.Add(0, Block(0, 3, 0, 1, 0, {0, 1, 2}, {0, 1, 3})));
  EXPECT_TRUE(evaluation.Add(0, Block(0, 3, 0, 1, 0, {0, 1, 2}, {0, 2, 2})));
  EXPECT_TRUE(evaluation.Add(0, Block(1, 2, 0, 1, 0, {1, 1}, {2, 0})));
  EXPECT_EQ(evaluation.confusion_matrix()->Csv(),
            "label,0,1,2,total\n"
            "0,1,0,0,1\n"
            "1,1,0,2,3\n"
            "2,0,0,1,1\n"
            "total,2,0,3,5\n");
}

wire::StepTimes Times(int64_t step, double compute_ms, double input_ms) {
  wire::StepTimes times;
  times.set_step(step);
  times.set_compute_ms(compute_ms);
  times.set_input_ms(input_ms);
  return times;
}

TEST(ProgressTest, KeepsTheTimesOfEachRank) {
  Progress progress;
  progress.Begin({.train_samples = 8, .global_batch = 4, .total_steps = 2, .slices = 2}, 2);
  progress.AddTimes(1, Times(0, 30, 4));
  progress.AddTimes(0, Times(0, 10, 0));
  progress.AddTimes(0, Times(1, 20, 0));
  progress.AddTimes(1, Times(1, 12, 4));
  const auto summary = progress.Summary("completed", 1);
  ASSERT_EQ(summary["ranks"].size(), 2u);
  EXPECT_EQ(summary["ranks"][0]["compute_ms"], 15.0);
  EXPECT_EQ(summary["ranks"][1]["compute_ms"], 21.0);
  EXPECT_EQ(summary["ranks"][1]["input_ms"], 4.0);
  EXPECT_EQ(summary["compute_ms"], 18.0);
  EXPECT_EQ(summary["imbalance_ms"], 3.0);
  EXPECT_EQ(summary["slowest_ms"], 27.0);  // the mean of 34 and 20
}

TEST(ProgressTest, KeepsTheFirstBestAndTheLastEvaluation) {
  Progress progress;
  progress.Begin({.train_samples = 8, .global_batch = 4, .total_steps = 9, .slices = 1}, 1);
  EXPECT_FALSE(progress.Summary("failed", 1).contains("best_step"));
  for (const auto& [version, accuracy] :
       std::map<int64_t, double>{{2, 0.25}, {4, 0.5}, {6, 0.5}, {8, 0.375}}) {
    progress.BeginEvaluation();
    progress.EndEvaluation({.version = version, .loss = 1, .accuracy = accuracy});
  }
  const auto summary = progress.Summary("completed", 1);
  EXPECT_EQ(summary["test_accuracy"], 0.375);
  EXPECT_EQ(summary["best_test_accuracy"], 0.5);
  EXPECT_EQ(summary["best_step"], 4);
  EXPECT_EQ(summary["stopped_early"], false);
  EXPECT_FALSE(summary.contains("test_top5_accuracy"));
}

TEST(ProgressTest, SaysThatARunStoppedEarly) {
  Progress progress;
  progress.StopEarly("reached the test accuracy 0.9");
  const auto summary = progress.Summary("completed", 1);
  EXPECT_EQ(summary["reason"], "completed");
  EXPECT_EQ(summary["stopped_early"], true);
  EXPECT_THAT(summary["stop_reason"].get<std::string>(), StartsWith("reached"));
}

}  // namespace
}  // namespace muster
