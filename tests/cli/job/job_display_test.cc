#include "cli/job/job_display.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <numeric>
#include <sstream>

#include "common/base/fd.h"

namespace muster {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

events::Progress Example() {
  events::Progress progress;
  progress.mutable_at()->set_step(57);
  progress.mutable_at()->set_epoch(0.15);
  progress.mutable_at()->set_elapsed_s(6.1);
  progress.set_total_steps(3910);
  progress.set_epochs(10);
  events::Measured& measured = *progress.mutable_measured();
  measured.set_train_loss(1.9012);
  measured.set_train_accuracy(0.31);
  measured.set_images_per_second(1200.4);
  measured.set_step_ms(100);
  measured.set_waiting_share(0.02);
  progress.set_eta_s(300);
  return progress;
}

TEST(ProgressLineTest, SaysEverything) {
  EXPECT_EQ(ProgressLine(Example(), 1000),
            "step 57/3,910  epoch 0.15/10  loss 1.901  accuracy 31.0 %  1,200 images/s  "
            "waiting 2 %  5 min 00 s left");
}

TEST(ProgressLineTest, LeavesOutWhatMattersLeast) {
  EXPECT_EQ(ProgressLine(Example(), 100),
            "step 57/3,910  epoch 0.15/10  loss 1.901  accuracy 31.0 %  1,200 images/s  "
            "5 min 00 s left");
  EXPECT_EQ(ProgressLine(Example(), 60),
            "step 57/3,910  epoch 0.15/10  loss 1.901  1,200 images/s");
  EXPECT_EQ(ProgressLine(Example(), 30), "step 57/3,910  loss 1.901");
  EXPECT_EQ(ProgressLine(Example(), 8), "step 5..");
}

TEST(ProgressLineTest, FitsEveryWidth) {
  for (int width = 0; width < 130; ++width) {
    EXPECT_LE(ProgressLine(Example(), width).size(), static_cast<size_t>(width));
  }
}

TEST(ProgressLineTest, EvaluationComesFirst) {
  events::Progress progress = Example();
  progress.mutable_evaluating()->set_done(12);
  progress.mutable_evaluating()->set_total(40);
  EXPECT_EQ(ProgressLine(progress, 1000),
            "evaluating 12/40  step 57/3,910  epoch 0.15/10  loss 1.901  accuracy 31.0 %");
  progress.mutable_evaluating()->Clear();
  EXPECT_EQ(ProgressLine(progress, 30), "evaluating  step 57/3,910");
}

TEST(ProgressLineTest, WhatIsNotKnownIsLeftOut) {
  events::Progress progress;
  EXPECT_EQ(ProgressLine(progress, 80), "");
  progress.mutable_measured()->set_train_loss(2);
  EXPECT_EQ(ProgressLine(progress, 80), "loss 2.000");
  EXPECT_EQ(IntervalLine(progress), "step     0  loss  2.000");
}

TEST(ProgressLineTest, IntervalLinesLineUp) {
  events::Progress first = Example(), second = Example();
  second.mutable_at()->set_step(3910);
  second.mutable_at()->set_epoch(10);
  second.mutable_measured()->set_images_per_second(12);
  second.set_eta_s(0);
  std::string a = IntervalLine(first), b = IntervalLine(second);
  EXPECT_EQ(a.find("images/s"), b.find("images/s"));
  EXPECT_EQ(a.find("waiting"), b.find("waiting"));
  EXPECT_EQ(a,
            "step    57/3,910  epoch   0.15/10  loss  1.901  accuracy 31.0 %   1,200 images/s"
            "   100 ms/step  waiting  2 %  5 min 00 s left");
}

TEST(ProgressLineTest, Evaluation) {
  events::Evaluation evaluation;
  evaluation.mutable_at()->set_step(391);
  evaluation.mutable_at()->set_epoch(1);
  evaluation.mutable_at()->set_elapsed_s(41);
  evaluation.mutable_test()->set_accuracy(0.5512);
  evaluation.mutable_test()->set_loss(1.28421);
  EXPECT_EQ(
      EvaluationLine(evaluation),
      "evaluation  epoch 1.00  step 391  test accuracy 55.12 %  test loss 1.2842  after 41 s");
  EXPECT_EQ(EvaluationLine(evaluation, 80),
            "evaluation  epoch 1.00  step 391  test accuracy 55.12 %  test loss 1.2842");
  EXPECT_EQ(EvaluationLine(evaluation, 10),
            "evaluation  step 391  test accuracy 55.12 %  test loss 1.2842");
  events::Scalar& top5 = *evaluation.mutable_test()->add_scalars();
  top5.set_name("top 5");
  top5.set_value(0.954);
  EXPECT_EQ(EvaluationLine(evaluation, 80),
            "evaluation  step 391  test accuracy 55.12 %  top 5 95.40 %  test loss 1.2842");
  evaluation.mutable_test()->clear_scalars();
  *evaluation.mutable_validation() = evaluation.test();
  evaluation.clear_test();
  EXPECT_EQ(EvaluationLine(evaluation),
            "evaluation  epoch 1.00  step 391  validation accuracy 55.12 %  validation loss 1.2842"
            "  after 41 s");
}

// The first line after a resume shows the total length.
TEST(JobDisplayTest, ALogLineBeforeAnyProgressHasTheTotals) {
  std::string pattern = std::filesystem::temp_directory_path() / "muster-display-XXXXXX";
  const UniqueFd file(::mkstemp(pattern.data()));
  {
    Console console(file.get());
    const config::Config config;
    const JobPlan plan{.dir = nullptr, .config = &config};
    JobDisplay display(console, plan);
    events::Event event;
    event.mutable_started()->set_total_steps(2000);
    event.mutable_started()->set_epochs(20);
    display.OnEvent(event);
    event.mutable_log()->mutable_at()->set_step(1500);
    event.mutable_log()->mutable_at()->set_epoch(15);
    display.OnEvent(event);
    // The next line is due at 1,550.
    event.mutable_log()->mutable_at()->set_step(1520);
    display.OnEvent(event);
    event.mutable_log()->mutable_at()->set_step(1560);
    display.OnEvent(event);
    events::Evaluation& evaluation = *event.mutable_evaluation();
    evaluation.mutable_at()->set_step(1500);
    for (const char* name : {"a", "b", "c", "d"}) {
      events::Scalar& scalar = *evaluation.mutable_test()->add_scalars();
      scalar.set_name(name + std::string(20, '.'));
      scalar.set_value(1.5);
    }
    evaluation.set_decision("the learning rate falls from 0.1 to 0.01: because");
    display.OnEvent(event);
    console.Flush(1);
  }
  std::stringstream text;
  text << std::ifstream(pattern).rdbuf();
  EXPECT_THAT(text.str(),
              AllOf(HasSubstr("\nstep 1,500/2,000  epoch  15.00/20\nstep 1,560/2,000"),
                    HasSubstr("\nevaluation  step 1,500  a.................... 1.5"
                              "  b.................... 1.5\n"
                              "  c.................... 1.5  d.................... 1.5\n"),
                    HasSubstr("\nThe learning rate falls from 0.1 to 0.01: because\n")));
  std::filesystem::remove(pattern);
}

// As soon as two seconds of steps are measured, once, and of long runs with what shortens them.
TEST(JobDisplayTest, ALongRunIsTimed) {
  const auto shown = [](int64_t steps) {
    std::string pattern = std::filesystem::temp_directory_path() / "muster-display-XXXXXX";
    const UniqueFd file(::mkstemp(pattern.data()));
    {
      Console console(file.get());
      config::Config config;
      config.mutable_run()->set_initial_weights("resnet18.safetensors");
      const JobPlan plan{.dir = nullptr, .config = &config};
      JobDisplay display(console, plan);
      events::Event event;
      event.mutable_started()->set_steps_per_epoch(10);
      display.OnEvent(event);
      for (const double step_ms : {4000, 1400, 1600, 1500}) {  // the first one warms up
        events::Progress& progress = *event.mutable_progress();
        progress.mutable_measured()->set_step_ms(step_ms);
        progress.mutable_measured()->set_timed_steps(1);
        progress.set_eta_s(1);
        progress.set_total_steps(100 + steps);
        progress.mutable_at()->set_step(100);
        display.OnEvent(event);
      }
      console.Flush(1);
    }
    std::stringstream text;
    text << std::ifstream(pattern).rdbuf();
    std::filesystem::remove(pattern);
    return text.str();
  };
  const std::string line = "\nA step takes about 1.5 s, an epoch 15 s, the rest of the run ";
  EXPECT_THAT(shown(480), HasSubstr(line + "12 min 00 s without evaluations; shorter: --freeze"));
  EXPECT_EQ(shown(480).find("A step"), shown(480).rfind("A step"));
  EXPECT_THAT(shown(80), HasSubstr(line + "2 min 00 s without evaluations\n"));
  EXPECT_THAT(shown(39), Not(HasSubstr("A step")));
}

TEST(ProgressLineTest, ScalarsAreDroppedFirst) {
  events::Progress progress = Example();
  for (const char* name : {"recall", "f1"}) {
    progress.mutable_measured()->add_scalars()->set_name(name);
    progress.mutable_measured()->mutable_scalars()->rbegin()->set_value(0.91349);
  }
  progress.mutable_measured()->mutable_scalars(1)->clear_value();
  EXPECT_EQ(ProgressLine(progress, 1000),
            "step 57/3,910  epoch 0.15/10  loss 1.901  accuracy 31.0 %  recall 0.9135  "
            "f1 not finite  1,200 images/s  waiting 2 %  5 min 00 s left");
  EXPECT_EQ(ProgressLine(progress, 130),
            "step 57/3,910  epoch 0.15/10  loss 1.901  accuracy 31.0 %  recall 0.9135  "
            "1,200 images/s  waiting 2 %  5 min 00 s left");
  EXPECT_EQ(ProgressLine(progress, 60), "step 57/3,910  epoch 0.15/10  loss 1.901  1,200 images/s");
}

TEST(RankListTest, NamesRanks) {
  using Ranks = std::vector<uint32_t>;
  EXPECT_EQ(RankList(Ranks{1}), "rank 1");
  EXPECT_EQ(RankList(Ranks{1, 3}), "ranks 1 and 3");
  EXPECT_EQ(RankList(Ranks{1, 3, 4}), "ranks 1, 3 and 4");
  EXPECT_EQ(RankList({}), "unknown ranks");
  Ranks many(1000);
  std::iota(many.begin(), many.end(), 0);
  EXPECT_EQ(RankList(many), "ranks 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 and 988 more");
}

}  // namespace
}  // namespace muster
