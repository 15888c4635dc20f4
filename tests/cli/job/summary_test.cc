#include "cli/job/summary.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "common/base/text.h"
#include "tests/cli/text/unwrapped.h"
#include "tests/data/temp_dir.h"

namespace muster {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;
using ::testing::SizeIs;

TEST(SummaryTest, WhatOneExpectsIsLeftOut) {
  const testing::TempDir parent;
  const RunDir dir = RunDir::Open(parent / "run");
  events::Summary summary;
  summary.set_end(events::Summary::COMPLETED);
  events::Measured& measured = *summary.mutable_measured();
  measured.set_step_ms(100);
  events::StepShares& shares = *measured.mutable_shares();
  shares.set_overhead(0.1);
  shares.set_input(0);
  shares.set_imbalance(0);
  events::StepParts& parts = *summary.add_ranks()->mutable_parts();
  parts.set_compute_ms(90);
  parts.set_input_ms(0);
  const auto lines = [&](bool on_gpus, bool verbose) {
    return SummaryLines(summary, 1, {.dir = dir, .on_gpus = on_gpus, .verbose = verbose}).size();
  };
  const size_t least = lines(false, false);
  EXPECT_EQ(lines(false, true), least + 4);  // the row of the limit is long
  EXPECT_EQ(lines(true, false), least + 4);
  shares.set_overhead(0.6);
  EXPECT_EQ(lines(false, false), least + 4);
}

TEST(SummaryTest, ARunThatLearnedNothingPointsToTheRecipes) {
  const testing::TempDir parent;
  const RunDir dir = RunDir::Open(parent / "run");
  events::Summary summary;
  summary.set_end(events::Summary::COMPLETED);
  const auto hints = [&](double accuracy, int64_t classes) {
    summary.set_best_accuracy(accuracy);
    const auto lines = SummaryLines(summary, 1, {.dir = dir, .classes = classes});
    return std::ranges::any_of(lines, [](const std::string& line) {
      return line.find("RECIPES.md") != std::string::npos;
    });
  };
  EXPECT_TRUE(hints(0.0982, 10));
  EXPECT_FALSE(hints(0.12, 10));
  EXPECT_FALSE(hints(0.01, 0));
  summary.set_end(events::Summary::FAILED);
  EXPECT_FALSE(hints(0.0982, 10));
}

TEST(SummaryTest, PartsOfAStepAddUp) {
  const testing::TempDir parent;
  const RunDir dir = RunDir::Open(parent / "run");
  events::Summary summary;
  summary.set_end(events::Summary::COMPLETED);
  summary.set_steps(3910);
  summary.mutable_at()->set_samples(500000);
  summary.mutable_at()->set_elapsed_s(411);
  summary.mutable_test()->set_accuracy(0.7);
  events::Measured& measured = *summary.mutable_measured();
  measured.set_step_ms(100);
  measured.mutable_parts()->set_compute_ms(80);
  measured.mutable_parts()->set_push_ms(5);
  measured.mutable_parts()->set_wait_ms(10);
  measured.set_images_per_second(1200);
  measured.mutable_shares()->set_overhead(0.024);
  measured.mutable_shares()->set_imbalance(0.051);
  EXPECT_THAT(SummaryLines(summary, 2, {.dir = dir}),
              ElementsAre("Completed: 3,910 steps, 500,000 images in 6 min 51 s",
                          "  test accuracy  70.00 %",  //
                          "  speed          1,200 images/s, 600 per worker",
                          "  step           100 ms: compute 80 %, wait 10 %, push 5 %, other 5 %",
                          "  overhead       2.4 % of a step, imbalance between ranks 5.1 %",
                          "  run directory  " + dir.shown()));
  // With a validation set for selection and a test set for the final result.
  summary.set_best_accuracy(0.75);
  summary.set_best_step(2000);
  summary.mutable_validation()->set_accuracy(0.72);
  EXPECT_THAT(SummaryLines(summary, 2, {.dir = dir}),
              IsSupersetOf({"  validation     accuracy 72.00 %, best 75.00 % at step 2,000",
                            "  test accuracy  70.00 %"}));
  // Scalars of a program follow.
  summary.mutable_test()->add_scalars()->set_name("f1");
  summary.mutable_test()->mutable_scalars(0)->set_value(0.25);
  measured.set_train_loss(1.5);
  *measured.mutable_scalars() = summary.test().scalars();
  EXPECT_THAT(
      SummaryLines(summary, 2, {.dir = dir}),
      IsSupersetOf({"  test accuracy  70.00 %, f1 0.25", "  training loss  1.5000, f1 0.25"}));
  for (const char* name : {"a", "b", "c", "d", "e", "f"}) summary.add_other_bits(name);
  EXPECT_THAT(
      SummaryLines(summary, 2, {.dir = dir}),
      Contains("  bits           may differ in other runs, because of a, b, c, d, e and 1 more"));
  summary.clear_other_bits();
  summary.mutable_test()->clear_scalars();
  measured.clear_scalars();
  summary.clear_validation();
  // Lists the weights, each file with its step, and the files that have been removed.
  EXPECT_THAT(dir.MissingFiles(0, summary), SizeIs(4));
  for (const char* file : {"model.safetensors", "best.safetensors"}) {
    events::Summary::Model& model = *summary.add_models();
    model.set_file(file);
    model.set_step(summary.models_size() == 1 ? 3910 : 2000);
    model.set_average(true);
    model.set_test_accuracy(0.7125);
  }
  EXPECT_THAT(SummaryLines(summary, 2, {.dir = dir}),
              IsSupersetOf({"  weights        model.safetensors (moving average, step 3,910),",
                            "                 best.safetensors (moving average, step 2,000, "
                            "71.25 %)"}));
  EXPECT_THAT(dir.MissingFiles(0, summary), SizeIs(6));
  summary.add_restarts()->set_cause("signal 9");
  EXPECT_EQ(SummaryLines(summary, 2, {.dir = dir})[0],
            "Completed: 3,910 steps, 500,000 images in 6 min 51 s, not counting lost steps");
}

TEST(SummaryTest, ALossThatIsNotFiniteIsShown) {
  const testing::TempDir parent;
  const RunDir dir = RunDir::Open(parent / "run");
  events::Summary summary;
  summary.mutable_validation()->set_loss(INFINITY);
  EXPECT_THAT(
      SummaryLines(summary, 1, {.dir = dir}),
      IsSupersetOf(
          {"  validation     loss inf",
           "  warning        a loss is not finite: outputs or targets of some samples are"}));
}

// The command can be copied.
TEST(SummaryTest, TheTraceIsNamed) {
  EXPECT_THAT(TraceLine("my runs/a.json", 5, 0),
              ::testing::EndsWith("muster trace 'my runs/a.json'"));
}

// Rounded shares never exceed 100 %, and work outside of the step's length is reported.
TEST(SummaryTest, SharesOfAStepNeverExceedIt) {
  const testing::TempDir parent;
  const RunDir dir = RunDir::Open(parent / "run");
  const auto step_row = [&](const events::Summary& summary) {
    const std::string text = testing::Unwrapped(Join(SummaryLines(summary, 2, {.dir = dir}), "\n"));
    const size_t begin = text.find(" step ");
    return text.substr(begin, text.find(" run directory", begin) - begin);
  };
  const auto total = [](const std::string& row) {
    int sum = 0;
    for (size_t at = row.find(':'); (at = row.find(" %", at + 1)) != std::string::npos;) {
      sum += std::stoi(row.substr(row.rfind(' ', at - 1)));
    }
    return sum;
  };
  events::Summary summary;
  summary.set_steps(100);
  events::Measured& measured = *summary.mutable_measured();
  measured.set_step_ms(1000);
  measured.set_timed_steps(90);
  events::StepParts& parts = *measured.mutable_parts();
  parts.set_compute_ms(975);
  parts.set_input_ms(5);
  parts.set_push_ms(5);
  parts.set_wait_ms(5);
  parts.set_pull_ms(5);
  const int whole = total(step_row(summary));
  EXPECT_GE(whole, 98);  // shares below 1 % are omitted
  EXPECT_LE(whole, 100);
  // Clocks differ, so the ranks' times may slightly exceed the step.
  parts.set_compute_ms(1100);
  EXPECT_LE(total(step_row(summary)), 100);
  measured.set_timed_steps(1);
  EXPECT_THAT(step_row(summary), HasSubstr("from 1 of 100 steps, because the others began during"));
  // Only this process's own steps of a resumed run were timed.
  summary.set_steps_before(80);
  measured.set_timed_steps(19);
  EXPECT_THAT(step_row(summary), HasSubstr("from 19 of 100 steps, because the others came before"));
  summary.set_steps_before(0);
  measured.set_timed_steps(0);
  EXPECT_EQ(total(step_row(summary)), 0);
}

TEST(SummaryTest, CommandsThatContinueTheRunAreWordsOfAShell) {
  const testing::TempDir parent;
  const std::string path = parent / "a run";
  const RunDir dir = RunDir::Open(path);
  std::ofstream(dir.ConfigPath()) << "run {}";
  const KeptRun run{.dir = dir};
  EXPECT_EQ(GoOnText(std::nullopt, {.dir = dir}),
            path + " holds no checkpoint: the run cannot be resumed.");
  events::Summary summary;
  summary.set_trouble("the disk is full");
  EXPECT_THAT(TroubleText(summary, {.dir = dir, .by_hand = true}),
              HasSubstr("muster server '" + path + "/config.txtpb' --run-dir DIR"));
  summary.set_checkpoint("somewhere");
  summary.set_checkpoint_step(1200);
  EXPECT_EQ(GoOnText(summary, run),
            path + " holds no checkpoint: the run cannot be resumed.");  // by now
  std::filesystem::create_directories(path + "/checkpoints/step-00001200-g1");
  // Not every error is a full disk.
  EXPECT_THAT(TroubleText(summary, run), AllOf(HasSubstr("--resume"), Not(HasSubstr("room"))));
  EXPECT_EQ(GoOnText(summary, run),
            "To resume from step 1,200: muster launch --resume '" + path + "'");
  EXPECT_EQ(GoOnText(summary, {.dir = dir, .hosts = "-H a:2,b:2"}),
            "To resume from step 1,200: muster launch --resume '" + path + "' -H a:2,b:2");
  std::filesystem::remove_all(path);
  EXPECT_EQ(GoOnText(summary, run),
            path + " was removed during the run: the run cannot be resumed.");
  EXPECT_THAT(TroubleText(summary, run),
              AllOf(HasSubstr("cannot be resumed"), Not(HasSubstr("--resume")),
                    Not(HasSubstr("config.txtpb"))));
}

TEST(RestartsTextTest, SaysWhereFromAndHowOften) {
  events::Summary summary;
  EXPECT_EQ(RestartsText(summary), "");
  const auto add = [&](int64_t from) {
    events::Restarted& restarted = *summary.add_restarts();
    restarted.set_cause("signal 9");
    restarted.set_from_step(from);
    return &restarted;
  };
  add(100)->set_lost_at_step(1120);
  EXPECT_EQ(RestartsText(summary),
            "the server was lost at step 1,120 (signal 9) and restarted once, from step 100");
  add(200);
  EXPECT_EQ(RestartsText(summary),
            "the server was lost and restarted 2 times: at step 1,120 (signal 9) from step 100, "
            "before its first step (signal 9) from step 200");
  add(300);
  add(400);
  EXPECT_THAT(RestartsText(summary), HasSubstr("4 times: … before its first step (signal 9) from "
                                               "step 200, "));
}

}  // namespace
}  // namespace muster
