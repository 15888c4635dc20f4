#include "launch/job/summary_text.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>

#include "common/base/join.h"
#include "launch/job/job_text.h"
#include "tests/launch/text/unwrapped.h"

namespace muster {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

TEST(SummaryTest, PartsOfAStepAddUp) {
  std::string pattern = std::filesystem::temp_directory_path() / "muster-text-XXXXXX";
  RunDir dir = RunDir::Open(::mkdtemp(pattern.data()));
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
  EXPECT_THAT(
      SummaryLines(summary, 2, false, dir, FilesText(2)),
      ElementsAre("Completed: 3,910 steps, 500,000 images in 6 min 51 s",
                  "  test accuracy  70.00 %",  //
                  "  speed          1,200 images/s, 600 per worker",
                  "  step           100 ms",  //
                  "                 compute    80.0 ms   80 %",
                  "                 push       5.00 ms    5 %",
                  "                 wait       10.0 ms   10 %",
                  "                 other      5.00 ms    5 %",
                  "  overhead       2.4 % of a step beyond the slowest rank's compute; imbalance",
                  "                 between ranks 5.1 %", HasSubstr("run directory  "),
                  "  run files      config.txtpb, metrics.jsonl, server.log, worker-0.log,",
                  "                 worker-1.log"));
  EXPECT_THAT(SummaryLines(summary, 2, false, dir, "").back(), HasSubstr("run directory  "));
  // The weights, each file with its step, and what somebody has taken away of them.
  EXPECT_THAT(dir.MissingFiles(0, summary), SizeIs(3));
  for (const char* file : {"model.safetensors", "best.safetensors"}) {
    events::Summary::Model& model = *summary.add_models();
    model.set_file(file);
    model.set_step(summary.models_size() == 1 ? 3910 : 2000);
    model.set_average(true);
    model.set_test_accuracy(0.7125);
  }
  EXPECT_THAT(testing::Unwrapped(Join(SummaryLines(summary, 2, false, dir, ""), "\n")),
              AllOf(HasSubstr(" weights " + dir.shown() +
                              "/model.safetensors: the moving average after step 3,910"),
                    HasSubstr("/best.safetensors: the moving average of the best evaluation, at "
                              "step 2,000 (71.25 %)")));
  EXPECT_THAT(dir.MissingFiles(0, summary), SizeIs(5));
  dir.Discard();
  std::filesystem::remove_all(dir.path());
}

// What is rounded never adds up to more than the whole; and what the step's length leaves out is
// said.
TEST(SummaryTest, SharesOfAStepNeverExceedIt) {
  const auto step_lines = [](const events::Summary& summary) {
    std::string pattern = std::filesystem::temp_directory_path() / "muster-text-XXXXXX";
    RunDir dir = RunDir::Open(::mkdtemp(pattern.data()));
    std::vector<std::string> lines;
    for (const std::string& line : SummaryLines(summary, 2, false, dir, "")) {
      if (line.starts_with("  step ") || line.ends_with(" %")) lines.push_back(line);
    }
    dir.Discard();
    std::filesystem::remove_all(dir.path());
    return lines;
  };
  const auto total = [](const std::vector<std::string>& lines) {
    int sum = 0;
    for (const std::string& line : lines) {
      if (line.ends_with(" %")) sum += std::stoi(line.substr(line.size() - 6));
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
  EXPECT_EQ(total(step_lines(summary)), 100);  // rounded to the nearest it would be 98 + 4 x 1
  // Two clocks: the ranks' times may be a little longer than the step.
  parts.set_compute_ms(1100);
  EXPECT_EQ(total(step_lines(summary)), 100);
  measured.set_timed_steps(1);
  EXPECT_EQ(step_lines(summary).front(),
            "  step           1,000 ms; of 1 of 100 steps, since the others began during an");
  // Of a run that went on, only this process's own steps were timed.
  summary.set_steps_before(80);
  measured.set_timed_steps(19);
  EXPECT_EQ(step_lines(summary).front(),
            "  step           1,000 ms; of 19 of 100 steps, since the others came before the");
  summary.set_steps_before(0);
  measured.set_timed_steps(0);
  EXPECT_EQ(step_lines(summary).size(), 1u);
}

}  // namespace
}  // namespace muster
