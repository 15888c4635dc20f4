// Evaluations: sums, rejected blocks, and the best one.
#include "ps/evaluate/evaluation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "common/events/metrics_line.h"
#include "ps/evaluate/evaluator.h"
#include "ps/record/progress.h"
#include "ps/record/step_balance.h"

namespace muster {
namespace {

using ::testing::StartsWith;

wire::EvaluatedBlock Block(uint32_t number, int64_t samples, double loss, int64_t correct,
                           double top5, const std::vector<uint32_t>& labels = {},
                           const std::vector<uint32_t>& predicted = {}) {
  wire::EvaluatedBlock block;
  block.set_version(7);
  block.set_block(number);
  block.set_samples(samples);
  block.set_loss(loss);
  block.set_correct(correct);
  block.add_metric(top5);
  for (const uint32_t label : labels) block.add_label(label);
  for (const uint32_t class_number : predicted) block.add_predicted(class_number);
  return block;
}

wire::EvaluatedBlock OfValidation(wire::EvaluatedBlock block) {
  block.set_set(wire::VALIDATION);
  return block;
}

const Evaluation::Time kNow{};

bool Takes(Evaluation& evaluation, uint32_t rank, const wire::EvaluatedBlock& block) {
  return evaluation.Add(rank, block, kNow);
}

TEST(EvaluationTest, BlocksOfALostRankAreGivenToAnother) {
  Evaluation evaluation(7, wire::TEST, 16, 4, {0, 1}, 10, false, kNow);
  EXPECT_TRUE(Takes(evaluation, 1, Block(2, 4, 1, 1, 2)));
  EXPECT_THAT(evaluation.Unassigned(), ::testing::IsEmpty());
  EXPECT_EQ(evaluation.Drop(1), 1);
  EXPECT_THAT(evaluation.Unassigned(), ::testing::ElementsAre(3));
  EXPECT_FALSE(Takes(evaluation, 1, Block(3, 4, 1, 1, 2))) << "no longer its own block";
  evaluation.Give(0, {3, 4}, kNow + std::chrono::seconds(1));
  EXPECT_GT(evaluation.last_given(), evaluation.last_progress());
  EXPECT_THAT(evaluation.Unassigned(), ::testing::IsEmpty());
  EXPECT_THAT(evaluation.OwingRanks(), ::testing::ElementsAre(0));
  EXPECT_THAT(evaluation.AssignedTo(0), ::testing::ElementsAre(0, 1, 3));
  EXPECT_TRUE(Takes(evaluation, 0, Block(3, 4, 1, 1, 2)));
  EXPECT_FALSE(Takes(evaluation, 0, Block(3, 4, 1, 1, 2))) << "duplicate";
  EXPECT_EQ(evaluation.Drop(0), 2);
  EXPECT_EQ(evaluation.done(), 2);
  EXPECT_FALSE(evaluation.Owes(0));
}

// It would make those slow who compute whole ones.
TEST(EvaluationTest, AShortBlockTellsNoTime) {
  Evaluation evaluation(7, wire::TEST, 9, 4, {0, 1, 2}, 10, false, kNow);
  ASSERT_THAT(evaluation.AssignedTo(2), ::testing::ElementsAre(2));
  EXPECT_TRUE(evaluation.Add(2, Block(2, 1, 1, 1, 1), kNow + std::chrono::seconds(1)));
  EXPECT_EQ(evaluation.longest_gap(), Evaluation::Time::duration::zero());
  EXPECT_TRUE(evaluation.Add(0, Block(0, 4, 1, 1, 2), kNow + std::chrono::seconds(4)));
  EXPECT_EQ(evaluation.longest_gap(), std::chrono::seconds(3));
}

// Value outputs have no accuracy, so the lowest loss is the best. A program's loss may be negative.
TEST(EvaluationTest, OfValuesTheLossDecides) {
  Progress progress(/*has_values=*/true);
  for (const auto& [version, loss] : {std::pair{3, 8.0}, {6, -4.0}, {9, -2.0}}) {
    Evaluation evaluation(version, wire::TEST, 4, 4, {0}, /*classes=*/1, false, kNow);
    wire::EvaluatedBlock block = Block(0, 4, loss, 0, 0);
    block.set_version(version);
    EXPECT_TRUE(Takes(evaluation, 0, block));
    progress.EndEvaluation(evaluation.Result());
  }
  EXPECT_EQ(progress.evaluations().best_step(), 6);
  const auto line = MetricsLine(progress.EvaluationLine(*progress.evaluations().last()));
  EXPECT_EQ(line["test_loss"], -0.5);
  EXPECT_TRUE(line["test_accuracy"].is_null());
  const auto summary = MetricsLine(progress.Summary(events::Summary::COMPLETED, 1));
  EXPECT_EQ(summary["best_step"], 6);
  EXPECT_FALSE(summary.contains("best_test_accuracy"));
}

TEST(EvaluationTest, ASlowRankHasFewerBlocks) {
  const Evaluation even(7, wire::TEST, 50, 4, {0, 2}, 10, false, kNow);
  EXPECT_EQ(even.BlocksOf(0), (Range{0, 6}));
  EXPECT_EQ(even.BlocksOf(2), (Range{6, 13}));
  const Evaluation uneven(7, wire::TEST, 50, 4, {0, 2}, 10, false, kNow, {10, 30});
  EXPECT_EQ(uneven.BlocksOf(0), (Range{0, 10}));
  EXPECT_EQ(uneven.BlocksOf(1), Range{});
  EXPECT_EQ(uneven.BlocksOf(2), (Range{10, 13}));
}

// A worker was lost while it evaluated one of them. They are assigned one at a time to idle ranks.
// Paused blocks wait, as do blocks without an idle rank.
TEST(EvaluatorTest, SuspectedBlocksAreGivenOneByOne) {
  config::Evaluation settings;
  settings.set_batch(4);
  settings.set_skip_final(true);
  Evaluator evaluator(settings, 10, 0);
  evaluator.Plan({}, 0, 32);
  (void)evaluator.Begin(7, wire::TEST, {0, 1}, kNow);  // 0 to 3, 4 to 7
  EXPECT_EQ(evaluator.Drop(1), 4);
  const auto give = [&] {
    std::vector<std::pair<uint32_t, uint32_t>> given;
    const auto how = [](int64_t block) {
      if (block == 5) return Evaluator::Give::kLater;
      return block == 4 ? Evaluator::Give::kWithOthers : Evaluator::Give::kAlone;
    };
    for (const auto& [rank, order] : evaluator.GiveUnassigned({0, 2, 3}, how, kNow)) {
      EXPECT_EQ(order.block_end(), order.block_begin() + 1);
      given.emplace_back(rank, order.block_begin());
    }
    return given;
  };
  using Given = std::pair<uint32_t, uint32_t>;
  EXPECT_THAT(give(), ::testing::ElementsAre(Given{3, 4}, Given{2, 6}));
  EXPECT_THAT(give(), ::testing::IsEmpty()) << "all are busy";
  EXPECT_TRUE(evaluator.Add(2, Block(6, 4, 1, 1, 2), kNow));
  EXPECT_THAT(give(), ::testing::ElementsAre(Given{2, 7}));
}

TEST(EvaluatorTest, ImagesAreInTheOrderOfTheSet) {
  config::Evaluation settings;
  settings.set_batch(4);
  Evaluator evaluator(settings, 10, 3);
  evaluator.Plan({}, 0, 12);
  for (const wire::Evaluate& order : evaluator.Begin(7, wire::TEST, {0}, kNow)) {
    EXPECT_EQ(order.images(), 3u);
  }
  const auto add = [&](uint32_t number, const std::vector<int64_t>& indexes) {
    wire::EvaluatedBlock block = Block(number, 4, 1, 1, 2);
    for (const int64_t index : indexes) block.add_image()->set_index(index);
    EXPECT_TRUE(evaluator.Add(0, block, kNow));
  };
  add(2, {8});
  add(0, {0, 7});  // the second one belongs to another block
  add(1, {4, 5});  // one too many
  std::vector<int64_t> indexes;
  for (const SampleImage& image : evaluator.TakeImages()) indexes.push_back(image.index);
  EXPECT_THAT(indexes, ::testing::ElementsAre(0, 4, 8));
  EXPECT_THAT(evaluator.TakeImages(), ::testing::IsEmpty());
}

TEST(EvaluatorTest, ABlockOfTheOtherSetIsRefused) {
  config::Evaluation settings;
  settings.set_batch(4);
  Evaluator evaluator(settings, 10, 0);
  evaluator.Plan({}, 8, 4);
  EXPECT_EQ(evaluator.chooses(), wire::VALIDATION);
  EXPECT_TRUE(evaluator.TestsAtEnd());
  (void)evaluator.Begin(7, wire::VALIDATION, {0, 1}, kNow);
  EXPECT_TRUE(evaluator.Add(0, OfValidation(Block(0, 4, 1, 1, 2)), kNow));
  EXPECT_TRUE(evaluator.Add(1, OfValidation(Block(1, 4, 1, 1, 2)), kNow));
  (void)evaluator.Finish();
  EXPECT_FALSE(evaluator.Add(1, OfValidation(Block(1, 4, 1, 1, 2)), kNow)) << "none is running";
  // The test set is evaluated with the same version.
  (void)evaluator.Begin(7, wire::TEST, {0, 1}, kNow);
  EXPECT_FALSE(evaluator.Add(0, OfValidation(Block(0, 4, 1, 1, 2)), kNow));
  EXPECT_EQ(evaluator.current().done(), 0);
  evaluator.Plan({}, 0, 4);
  EXPECT_EQ(evaluator.chooses(), wire::TEST);
  EXPECT_FALSE(evaluator.TestsAtEnd());
}

TEST(EvaluationTest, SumsBlocksOfAllRanks) {
  Evaluation evaluation(7, wire::TEST, 10, 4, {0, 1}, 10, false,
                        kNow);  // blocks of 4, 4 and 2; rank 0 has the first
  EXPECT_FALSE(Takes(evaluation, 0, Block(1, 4, 1, 1, 2)));  // rank 1's
  EXPECT_TRUE(Takes(evaluation, 0, Block(0, 4, 1, 1, 2)));
  EXPECT_FALSE(Takes(evaluation, 0, Block(0, 4, 1, 1, 2)));  // duplicate
  EXPECT_TRUE(Takes(evaluation, 1, Block(1, 4, 2, 3, 4)));
  EXPECT_FALSE(evaluation.Complete());
  EXPECT_FALSE(Takes(evaluation, 1, Block(2, 4, 0, 0, 0)));  // the block has 2 samples
  EXPECT_FALSE(Takes(evaluation, 1, Block(2, 2, 0, 3, 0)));
  EXPECT_FALSE(Takes(evaluation, 1, Block(2, 2, 0, -1, 0)));
  wire::EvaluatedBlock other_version = Block(2, 2, 0.5, 1, 2);
  other_version.set_version(8);
  EXPECT_FALSE(Takes(evaluation, 1, other_version));
  wire::EvaluatedBlock last = Block(2, 2, 0.5, 1, 2);
  last.add_scalar()->set_sum(3);
  EXPECT_FALSE(Takes(evaluation, 1, last)) << "a scalar without a name";
  last.mutable_scalar(0)->set_name("a");
  EXPECT_TRUE(Takes(evaluation, 1, last));
  ASSERT_TRUE(evaluation.Complete());
  const EvaluationResult result = evaluation.Result();
  EXPECT_EQ(result.version, 7);
  EXPECT_DOUBLE_EQ(result.loss, 0.35);
  EXPECT_EQ(result.accuracy, 0.5);
  EXPECT_DOUBLE_EQ(result.scalars.at("top 5").Mean(), 0.8);
  EXPECT_EQ(result.scalars.at("a").Mean(), 1.5);
  EXPECT_EQ(evaluation.confusion_matrix(), nullptr);
}

TEST(EvaluationTest, PredictionsMakeTheConfusionMatrix) {
  Evaluation evaluation(7, wire::TEST, 3, 3, {0}, 3, true, kNow);
  EXPECT_FALSE(Takes(evaluation, 0, Block(0, 3, 0, 1, 0)));
  EXPECT_FALSE(Takes(evaluation, 0, Block(0, 3, 0, 1, 0, {0, 1, 2}, {0, 1})));
  EXPECT_TRUE(Takes(evaluation, 0, Block(0, 3, 0, 1, 0, {0, 1, 2}, {0, 2, 2})));
  EXPECT_EQ(evaluation.confusion_matrix()->counts(),
            (ConfusionCounts{{1, 0, 0}, {0, 0, 1}, {0, 0, 1}}));
}

wire::StepTimes Times(int64_t step, double compute_ms, double input_ms) {
  wire::StepTimes times;
  times.set_step(step);
  times.set_compute_ms(compute_ms);
  times.set_input_ms(input_ms);
  return times;
}

// The slowest rank alternates between steps. On average both compute for 15 ms.
TEST(StepBalanceTest, PartsOfAStep) {
  StepBalances balances(2);
  EXPECT_FALSE(balances.AddTimes(Times(0, 10, 0)));
  EXPECT_FALSE(balances.AddTimes(Times(0, 20, 4)));
  const auto first = balances.EndStep(0, 0.025);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->step_ms, 25);
  EXPECT_EQ(first->overhead_ms, 5);
  EXPECT_EQ(first->input_ms, 4);
  EXPECT_EQ(first->imbalance_ms, 5);
  // The other rank waited longer for input, but did not delay the step.
  EXPECT_FALSE(balances.AddTimes(Times(1, 20, 1)));
  EXPECT_FALSE(balances.EndStep(1, 0.055));
  const auto second = balances.AddTimes(Times(1, 10, 6));  // after the end of the step
  ASSERT_TRUE(second);
  EXPECT_EQ(second->overhead_ms, 35);
  EXPECT_EQ(second->input_ms, 1);
  EXPECT_EQ(second->imbalance_ms, 5);
  EXPECT_EQ(first->parts.compute_ms, 15);
  EXPECT_EQ(first->parts.input_ms, 2);
  StepBalance sum = *first;
  sum.Add(*second);
  EXPECT_EQ(sum.steps, 2);
  EXPECT_EQ(sum.parts.compute_ms, 30);
  EXPECT_DOUBLE_EQ(sum.Share(sum.overhead_ms), 40.0 / 80);
  EXPECT_DOUBLE_EQ(sum.Share(sum.imbalance_ms), 10.0 / 80);
}

// The server ends one step 20 ms late. The next step is shorter by as much, and the sum is right.
TEST(StepBalanceTest, AStepThatEndsLateIsPaidBack) {
  StepBalances balances(1);
  StepBalance sum;
  balances.AddTimes(Times(0, 40, 0));
  sum.Add(*balances.EndStep(0, 0.070));
  balances.AddTimes(Times(1, 40, 0));
  sum.Add(*balances.EndStep(1, 0.030));
  EXPECT_DOUBLE_EQ(sum.Share(sum.overhead_ms), 0.2);
}

TEST(StepBalanceTest, OneRankIsNeverUneven) {
  StepBalances balances(1);
  balances.AddTimes(Times(0, 30, 0));
  const auto step = balances.EndStep(0, 0.04);
  ASSERT_TRUE(step);
  EXPECT_EQ(step->overhead_ms, 10);
  EXPECT_EQ(step->imbalance_ms, 0);
}

TEST(StepBalanceTest, AStepThatCannotBeJudgedIsLeftOut) {
  StepBalances balances(1);
  balances.AddTimes(Times(0, 30, 0));
  EXPECT_FALSE(balances.EndStep(0, 0));              // unknown length
  EXPECT_FALSE(balances.EndStep(1, 0.04));           // no report yet
  EXPECT_FALSE(balances.AddTimes(Times(0, 30, 0)));  // too late for any step
  EXPECT_FALSE(balances.AddTimes(Times(7, 30, 0)));  // an unknown step
  balances.AddTimes(Times(2, 20, 0));
  const auto step = balances.EndStep(2, 0.04);
  ASSERT_TRUE(step);
  EXPECT_EQ(step->overhead_ms, 20);
  EXPECT_FALSE(balances.AddTimes(Times(1, 30, 0)));  // step 2 is complete, so step 1 is given up
}

TEST(ProgressTest, KeepsTheTimesOfEachRank) {
  Progress progress;
  EXPECT_EQ(progress.Summary(events::Summary::FAILED, 1).total_steps(), 0) << "not planned yet";
  const StepPlan plan{.train_samples = 8, .global_batch = 4, .total_steps = 2, .slices = 2};
  progress.Begin(plan, 2);
  const StepResult losses{.samples = 4};
  progress.AddTimes(1, Times(0, 30, 4));
  progress.AddTimes(0, Times(0, 10, 0));
  EXPECT_FALSE(
      MetricsLine(progress.Summary(events::Summary::FAILED, 1)).contains("overhead_share"));
  progress.EndStep(losses, 0.1, false);
  progress.AddTimes(0, Times(1, 20, 0));
  progress.AddTimes(1, Times(1, 12, 4));
  const auto summary = MetricsLine(progress.Summary(events::Summary::COMPLETED, 1));
  ASSERT_EQ(summary["ranks"].size(), 2u);
  EXPECT_EQ(summary["ranks"][0]["compute_ms"], 15.0);
  EXPECT_EQ(summary["ranks"][1]["compute_ms"], 21.0);
  EXPECT_EQ(summary["ranks"][1]["input_ms"], 4.0);
  // Step 0 alone counts, because its length is known: parts and lengths are of the same steps.
  EXPECT_EQ(summary["timed_steps"], 1);
  EXPECT_EQ(summary["compute_ms"], 20.0);
  EXPECT_LT(summary["step_ms"], 100.0);
  // Only step 0 has ended: the mean compute time is two thirds of the slowest.
  const double overhead = summary["overhead_share"], imbalance = summary["imbalance_share"];
  EXPECT_NEAR(imbalance, (1 - overhead) / 3, 1e-9 * (1 - overhead));
  EXPECT_NEAR(summary["input_share"], (1 - overhead) * 4 / 30, 1e-9 * (1 - overhead));
  const auto line = MetricsLine(progress.LogLine());
  EXPECT_EQ(line["overhead_share"], overhead);
  EXPECT_EQ(line["imbalance_share"], imbalance);
}

TEST(ProgressTest, CombinesWhatTheGpusReport) {
  Progress progress;
  const StepPlan plan{.train_samples = 8, .global_batch = 4, .total_steps = 2, .slices = 2};
  progress.Begin(plan, 2);
  const StepResult losses{.samples = 4};
  for (const uint32_t rank : {0, 1}) {
    wire::StepTimes times = Times(0, 1, 1);
    times.set_gpu_bytes(3'000'000 - 1'000'000 * rank);
    times.set_gpu_utilization(50 + 40 * rank);
    times.set_gpu_temperature(70 - 10 * rank);
    if (rank == 0) times.set_gpu_power_w(300);  // the other driver does not report it
    progress.AddTimes(rank, times);
  }
  progress.EndStep(losses, 0.1, false);
  const events::Measured measured = progress.LogLine().measured();
  EXPECT_EQ(measured.gpu_memory_mb(), 3);
  EXPECT_DOUBLE_EQ(measured.gpu_utilization(), 0.7);
  EXPECT_EQ(measured.gpu_temperature_c(), 70);
  EXPECT_EQ(measured.gpu_power_w(), 300);
  EXPECT_FALSE(progress.LogLine().measured().has_gpu_power_w()) << "no reports since then";
}

// Some ranks start the step while others still evaluate, so its length is meaningless.
TEST(ProgressTest, TheStepAfterAnEvaluationHasNoShares) {
  Progress progress;
  const StepPlan plan{.train_samples = 8, .global_batch = 4, .total_steps = 2, .slices = 1};
  progress.Begin(plan, 1);
  const StepResult losses{.samples = 4};
  progress.BeginEvaluation();
  progress.EndEvaluation({.version = 0, .loss = 1, .accuracy = 0.5});
  progress.AddTimes(0, Times(0, 30, 0));
  progress.EndStep(losses, 0.1, false);
  EXPECT_FALSE(MetricsLine(progress.LogLine()).contains("overhead_share"));
  progress.AddTimes(0, Times(1, 30, 0));
  progress.EndStep(losses, 0.1, false);
  EXPECT_TRUE(MetricsLine(progress.LogLine()).contains("overhead_share"));
}

TEST(ProgressTest, ATestBesideAValidationChoosesNothing) {
  Progress progress;
  progress.Begin({.train_samples = 8, .global_batch = 4, .total_steps = 9, .slices = 1}, 1);
  progress.EndEvaluation({.set = wire::VALIDATION, .version = 9, .loss = 1, .accuracy = 0.25});
  progress.EndEvaluation({.set = wire::TEST, .version = 9, .loss = 2, .accuracy = 0.5});
  const auto summary = MetricsLine(progress.Summary(events::Summary::COMPLETED, 1));
  EXPECT_EQ(summary["validation_accuracy"], 0.25);
  EXPECT_EQ(summary["validation_loss"], 1);
  EXPECT_EQ(summary["best_validation_accuracy"], 0.25);
  EXPECT_EQ(summary["test_accuracy"], 0.5);
  EXPECT_EQ(summary["test_loss"], 2);
  EXPECT_FALSE(summary.contains("best_test_accuracy"));
  Progress later;
  later.Restore(progress.Keep());
  EXPECT_EQ(later.evaluations().last()->set, wire::VALIDATION);
  EXPECT_EQ(later.evaluations().tested()->loss, 2);
}

TEST(ProgressTest, KeepsTheFirstBestAndTheLastEvaluation) {
  Progress progress;
  progress.Begin({.train_samples = 8, .global_batch = 4, .total_steps = 9, .slices = 1}, 1);
  EXPECT_FALSE(MetricsLine(progress.Summary(events::Summary::FAILED, 1)).contains("best_step"));
  for (const auto& [version, accuracy] :
       std::map<int64_t, double>{{2, 0.25}, {4, 0.5}, {6, 0.5}, {8, 0.375}}) {
    progress.BeginEvaluation();
    progress.EndEvaluation({.version = version, .loss = 1, .accuracy = accuracy});
  }
  const auto summary = MetricsLine(progress.Summary(events::Summary::COMPLETED, 1));
  EXPECT_EQ(summary["test_accuracy"], 0.375);
  EXPECT_EQ(summary["best_test_accuracy"], 0.5);
  EXPECT_EQ(summary["best_step"], 4);
  EXPECT_EQ(summary["stopped_early"], false);
  EXPECT_FALSE(summary.contains("test_top5_accuracy"));
}

// As a scalar, and as versions before protocol 19 kept it.
TEST(ProgressTest, AMetricHasItsKeyAfterAResume) {
  Progress progress;
  progress.Begin({.train_samples = 8, .global_batch = 4, .total_steps = 9, .slices = 1}, 1);
  progress.EndEvaluation(
      {.version = 2, .accuracy = 0.25, .scalars = {{"top 5", {3, 4}}, {"a", {1, 2}}}});
  checkpoint::Progress kept = progress.Keep(), old = kept;
  old.mutable_last_evaluation()->mutable_scalars()->RemoveLast();
  old.mutable_last_evaluation()->set_top5_accuracy(0.75);
  for (const checkpoint::Progress& state : {kept, old}) {
    Progress resumed;
    resumed.Restore(state);
    const auto line = MetricsLine(resumed.EvaluationLine(*resumed.evaluations().last()));
    EXPECT_EQ(line["test_top5_accuracy"], 0.75);
    EXPECT_EQ(line["test_scalars"].dump(), R"({"a":0.5})");
  }
  events::Evaluation old_event;
  old_event.mutable_test()->set_top5_accuracy(0.75);
  EXPECT_EQ(MetricsLine(old_event)["test_top5_accuracy"], 0.75);
}

TEST(ProgressTest, ScalarsAreMeansOfIntervalsWithoutSkippedSteps) {
  const auto step = [](double a) {
    return StepResult{.samples = 4, .scalars = {{"a", {a, 4}}, {"b", {1, 2}}}};
  };
  const StepPlan plan{.train_samples = 8, .global_batch = 4, .total_steps = 9, .slices = 2};
  Progress progress, resumed;
  progress.Begin(plan, 1);
  progress.EndStep(step(4), 0.1, false);
  progress.EndStep(step(NAN), 0.1, true);
  resumed.Restore(progress.Keep());
  resumed.Begin(plan, 1);
  for (Progress* one : {&progress, &resumed}) {
    one->EndStep(step(8), 0.1, false);
    EXPECT_EQ(MetricsLine(one->LogLine())["scalars"].dump(), R"({"a":1.5,"b":0.5})");
    one->EndStep(step(NAN), 0.1, true);
    EXPECT_FALSE(MetricsLine(one->LogLine()).contains("scalars"));
    one->EndStep(step(NAN), 0.1, false);
    EXPECT_EQ(MetricsLine(one->LogLine())["scalars"].dump(), R"({"a":null,"b":0.5})");
    EvaluationResult result{.set = wire::VALIDATION, .version = 5};
    result.scalars["c"] = {3, 2};
    one->EndEvaluation(result);
    const auto line = MetricsLine(one->EvaluationLine(result));
    EXPECT_EQ(line["validation_scalars"].dump(), R"({"c":1.5})");
    EXPECT_EQ(line["scalars"]["b"], 0.5) << "those of the last interval";
  }
  Progress ended;
  ended.Restore(progress.Keep());
  const auto summary = MetricsLine(ended.Summary(events::Summary::COMPLETED, 1));
  EXPECT_EQ(summary["scalars"].dump(), R"({"a":null,"b":0.5})");
  EXPECT_EQ(summary["validation_scalars"].dump(), R"({"c":1.5})");
  EXPECT_FALSE(summary.contains("test_scalars"));
}

TEST(ProgressTest, SaysThatARunStoppedEarly) {
  Progress progress;
  progress.StopEarly("reached the test accuracy 0.9");
  const auto summary = MetricsLine(progress.Summary(events::Summary::COMPLETED, 1));
  EXPECT_EQ(summary["reason"], "completed");
  EXPECT_EQ(summary["stopped_early"], true);
  EXPECT_THAT(summary["stop_reason"].get<std::string>(), StartsWith("reached"));
}

TEST(ProgressTest, AnOpenRunIsAsLongAsItsProgramSays) {
  Progress progress;
  const StepPlan plan{
      .train_samples = 8, .global_batch = 4, .total_steps = 2 * StepPlan::kOpenEpochs};
  progress.Begin(plan, 1);
  EXPECT_EQ(progress.PositionLine().total_steps(), 0);
  for (const char* wrong : {"", "x", "1x", "-1", "2000001", "99999999999999999999"}) {
    EXPECT_NE(progress.ExpectSteps(wrong), "") << wrong;
  }
  EXPECT_EQ(progress.ExpectSteps("6"), "");
  EXPECT_EQ(progress.PositionLine().total_steps(), 6);
  EXPECT_EQ(progress.PositionLine().epochs(), 3);
  progress.EndStep({.samples = 4}, 0.1, false);
  progress.StopEarly("the program ended it");
  const events::Summary summary = progress.Summary(events::Summary::COMPLETED, 1);
  EXPECT_EQ(summary.total_steps(), 1);
  EXPECT_EQ(summary.stop_reason(), "");
}

}  // namespace
}  // namespace muster
