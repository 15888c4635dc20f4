// `muster top` in several terminal sizes, with and without colour, with 1, 2 and 64 workers.
#include "cli/view/top_view.h"

#include <fmt/core.h>
#include <gmock/gmock-matchers.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "common/base/text.h"

namespace muster {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const TopRun kLive{.name = "runs/a", .state = RunState::kRunning};

events::Status Status(int workers) {
  events::Status status;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(fmt::format(R"(
        state: "training"
        server {{ host: "lab3" pid: 812 cores: 0.42 bytes: 51000000 peak_bytes: 60000000 }}
        progress {{
          at {{ step: 1234 epoch: 3.16 elapsed_s: 725 }}
          total_steps: 3910 epochs: 10 eta_s: 1570
          measured {{
            train_loss: 0.912 train_accuracy: 0.673 images_per_second: 684.2 step_ms: 146.1
            gpu_memory_mb: 2500 gpu_utilization: 0.968 gpu_temperature_c: 71 gpu_power_w: 412.4
          }}
        }}
        learning_rate: 0.1
        test {{ accuracy: 0.6512 loss: 1 }}
        tested_step: 1173
        checkpoint {{ newest_step: 1173 next_step: 1564 }}
        slowest {{
          rank: {} since_step: 800 since_s: 130 busy_ms: 280 others_ms: 140 straggles: true
        }})",
                                                                        workers - 1),
                                                            &status));
  for (int rank = 0; rank < workers; ++rank) {
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
        fmt::format(R"(
          rank: {} host: "lab3" pid: {} images_per_second: 340.5
          gpu_utilization: 0.5 gpu_power_w: {}
          p50 {{ compute_ms: {} input_ms: 0.31 push_ms: 0.1 wait_ms: 3.2 }}
          p99 {{ compute_ms: 152 input_ms: 2.2 push_ms: 0.2 wait_ms: 12 pull_ms: 0.1 }})",
                    rank, 900 + rank, 300 + rank, rank + 1 == workers ? 280 : 140),
        status.add_ranks()));
  }
  return status;
}

std::string Screen(const events::Status& status, const TopScreen& screen,
                   const TopRun& run = kLive) {
  return Join(TopLines(status, run, screen), "\n");
}

TEST(TopViewTest, TheNextCheckpoint) {
  events::Status status = Status(1);
  status.clear_checkpoint();
  status.mutable_checkpoint()->set_next_s(90);
  const TopScreen screen{.width = 80, .height = 30};
  EXPECT_THAT(Screen(status, screen), HasSubstr("no checkpoint yet  next in 90 s"));
  status.clear_checkpoint();  // checkpoints are disabled
  EXPECT_THAT(Screen(status, screen), Not(HasSubstr("checkpoint")));
}

TEST(TopViewTest, ALossThatIsNotFinite) {
  events::Status status = Status(1);
  status.mutable_test()->set_loss(NAN);
  EXPECT_THAT(Screen(status, {.width = 199, .height = 30}),
              HasSubstr("test loss nan at step 1,173"));
}

TEST(TopViewTest, AWideTerminalHasEverything) {
  const std::string text = Screen(Status(2), {.width = 199, .height = 50});
  for (const char* part : {"runs/a  training  12 min 05 s",
                           "step 1,234/3,910",
                           "32 %",
                           "epoch 3.16/10",
                           "26 min 10 s left",
                           "loss 0.912",
                           "accuracy 67.3 %",
                           "test accuracy 65.12 % at step 1,173",
                           "684 samples/s",
                           "146 ms/step",
                           "GPU memory 2.5",
                           "GPUs 97 % 71 C 412 W",
                           "50 % 301 W",
                           "lab3, pid 812",
                           "0.42 cores",
                           "51.0 MB (most: 60.0 MB)",
                           "last checkpoint at step 1,173",
                           "next at step 1,564 in 48 s",
                           "slowest rank 1 since step 800 (2 min 10 s)",
                           "the others 140 ms",
                           "280/152",
                           "0.31/2.20",
                           "pull ms",
                           "901"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
}

TEST(TopViewTest, ScalarsOfAProgram) {
  events::Status status = Status(1);
  for (const auto& [name, value] : {std::pair("bits", 1.234567), {"broken", NAN}, {"top5", 0.5}}) {
    events::Scalar& scalar = *status.mutable_progress()->mutable_measured()->add_scalars();
    scalar.set_name(name);
    if (!std::isnan(value)) scalar.set_value(value);
  }
  EXPECT_THAT(Screen(status, {.width = 79, .height = 50}), HasSubstr("bits 1.235  top5 0.5"));
}

TEST(TopViewTest, ValuesHaveALoss) {
  events::Status status = Status(1);
  status.mutable_test()->clear_accuracy();
  status.mutable_test()->set_loss(0.25);
  EXPECT_THAT(Screen(status, {.width = 199, .height = 50}),
              HasSubstr("test loss 0.2500 at step 1,173"));
}

TEST(TopViewTest, NoLineIsLongerThanTheTerminal) {
  for (const int workers : {1, 2, 64}) {
    for (const int width : {40, 60, 79, 120, 199}) {
      events::Status status = Status(workers);
      status.set_waits(
          "step 1234 has waited 12 s: no loss from rank 1 (host lab3, pid 901); the "
          "limit is 60 s");
      for (const std::string& line : TopLines(status, kLive, {width, 24, false})) {
        EXPECT_LE(line.size(), static_cast<size_t>(width)) << line;
      }
    }
  }
}

TEST(TopViewTest, EightyColumnsKeepComputeAndWait) {
  EXPECT_THAT(Screen(Status(2), {.width = 79}),
              AllOf(HasSubstr("compute ms"), HasSubstr("wait ms"), HasSubstr("samples/s"),
                    Not(HasSubstr("  pid  "))));
}

TEST(TopViewTest, OfManyRanksTheSlowestAreShown) {
  const std::vector<std::string> lines = TopLines(Status(64), kLive, {.height = 24});
  EXPECT_LE(lines.size(), 23u);
  const std::string text = Join(lines, "\n");
  EXPECT_THAT(text, AllOf(HasSubstr("    63  "), HasSubstr("faster ranks")));
  events::Status status = Status(64);
  status.mutable_ranks(40)->set_images_per_second(100);
  EXPECT_THAT(Join(TopLines(status, kLive, {.height = 24}), "\n"),
              AllOf(HasSubstr("    40  "), HasSubstr("    63  ")));
  EXPECT_EQ(TopLines(Status(64), kLive, {.height = 100}).size(), 8u + 2 + 64);
}

TEST(TopViewTest, ColoursAreTakenBack) {
  const std::vector<std::string> lines = TopLines(Status(2), kLive, {.width = 79, .color = true});
  bool red = false;
  for (const std::string& line : lines) {
    EXPECT_EQ(line.find('\x1b') != std::string::npos, line.ends_with("\x1b[0m")) << line;
    red = red || (line.starts_with("\x1b[31;1m") && line.find("280/152") != std::string::npos);
  }
  EXPECT_TRUE(red);  // the rank that delays the others
}

// Escape sequences in the file must not reach the reader's terminal.
TEST(TopViewTest, NothingOfTheFileIsForTheTerminal) {
  events::Status status = Status(1);
  status.set_state("\x1b[2J\n");
  status.set_waits("\x1b[2J\n");
  status.mutable_ranks(0)->set_state("\x1b[2J\n");
  for (std::string* host :
       {status.mutable_server()->mutable_host(), status.mutable_ranks(0)->mutable_host()}) {
    *host = "\x1b]0;x\x07";
  }
  for (const std::string& line : TopLines(status, kLive, {.width = 199})) {
    EXPECT_TRUE(std::ranges::all_of(line, [](char c) { return c >= ' ' && c <= '~'; })) << line;
  }
}

TEST(TopViewTest, ARankWhoseRateIsNotKnownIsAmongTheSlowest) {
  events::Status status = Status(64);
  status.mutable_ranks(40)->set_images_per_second(NAN);
  EXPECT_THAT(Screen(status, {.height = 24}), HasSubstr("    40  "));
}

TEST(TopViewTest, HowARunIs) {
  events::Status status = Status(1);
  EXPECT_THAT(Screen(status, {}, {.name = "a"}), HasSubstr("killed while training"));
  EXPECT_THAT(Screen(status, {}, {"a", RunState::kRunning, 42}),
              HasSubstr("training, as of 42 s ago"));
  const TopRun full{
      .name = "a", .state = RunState::kRunning, .age_s = 42, .disk = "its disk is full"};
  EXPECT_THAT(Screen(status, {}, full), HasSubstr("the run cannot be saved: its disk is full"));
  // The disk was too full for the last status, but not for the last line of metrics.
  EXPECT_THAT(Screen(status, {}, {"a", RunState::kCompleted}), HasSubstr("a  completed"));
  status.set_state("completed");
  EXPECT_THAT(Screen(status, {}, {.name = "a", .age_s = 4200}), HasSubstr("a  completed"));
  // A file of another version or almost empty.
  EXPECT_FALSE(TopLines({}, kLive, {}).empty());
}

}  // namespace
}  // namespace muster
