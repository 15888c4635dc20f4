// `muster top` in several terminal sizes, with and without colour, with 1, 2 and 64 workers.
#include "cli/view/top_view.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/base/text.h"

namespace muster {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

const TopRun kLive{.name = "runs/a", .state = RunState::kRunning};

Json Spread(double p50, double p99) { return {{"p50", p50}, {"p99", p99}}; }

Json Status(int workers) {
  Json status{
      {"state", "training"},
      {"step", 1234},
      {"total_steps", 3910},
      {"epoch", 3.16},
      {"epochs", 10.0},
      {"elapsed_s", 725},
      {"eta_s", 1570},
      {"learning_rate", 0.1},
      {"train_loss", 0.912},
      {"train_accuracy", 0.673},
      {"test_accuracy", 0.6512},
      {"tested_step", 1173},
      {"images_per_second", 684.2},
      {"step_ms", 146.1},
      {"gpu_memory_mb", 2500.0},
      {"gpu_utilization", 0.968},
      {"gpu_temperature_c", 71},
      {"gpu_power_w", 412.4},
      {"server",
       {{"host", "lab3"}, {"pid", 812}, {"cores", 0.42}, {"bytes", 51e6}, {"peak_bytes", 60e6}}},
      {"checkpoint", {{"newest_step", 1173}, {"next_step", 1564}}},
      {"slowest",
       {{"rank", workers - 1},
        {"since_step", 800},
        {"since_s", 130},
        {"busy_ms", 280},
        {"others_ms", 140},
        {"straggles", true}}},
      {"ranks", Json::array()}};
  for (int rank = 0; rank < workers; ++rank) {
    const double compute = rank + 1 == workers ? 280 : 140;
    status["ranks"].push_back({{"rank", rank},
                               {"host", "lab3"},
                               {"pid", 900 + rank},
                               {"images_per_second", 340.5},
                               {"gpu_utilization", 0.5},
                               {"gpu_power_w", 300 + rank},
                               {"compute_ms", Spread(compute, 152)},
                               {"input_ms", Spread(0.31, 2.2)},
                               {"push_ms", Spread(0.1, 0.2)},
                               {"wait_ms", Spread(3.2, 12)},
                               {"pull_ms", Spread(0, 0.1)}});
  }
  return status;
}

std::string Screen(const Json& status, const TopScreen& screen, const TopRun& run = kLive) {
  return Join(TopLines(status, run, screen), "\n");
}

TEST(TopViewTest, TheNextCheckpoint) {
  Json status = Status(1);
  status["checkpoint"] = {{"next_s", 90.0}};
  const TopScreen screen{.width = 80, .height = 30};
  EXPECT_THAT(Screen(status, screen), HasSubstr("no checkpoint yet  next in 90 s"));
  status.erase("checkpoint");  // checkpoints are disabled
  EXPECT_THAT(Screen(status, screen), Not(HasSubstr("checkpoint")));
}

TEST(TopViewTest, ALossThatIsNotFinite) {
  Json status = Status(1);
  status["test_loss"] = nullptr;
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
  Json status = Status(1);
  status["scalars"] = {{"bits", 1.234567}, {"broken", nullptr}, {"top5", 0.5}};
  EXPECT_THAT(Screen(status, {.width = 79, .height = 50}), HasSubstr("bits 1.235  top5 0.5"));
}

TEST(TopViewTest, ValuesHaveALoss) {
  Json status = Status(1);
  status.erase("test_accuracy");
  status["test_loss"] = 0.25;
  EXPECT_THAT(Screen(status, {.width = 199, .height = 50}),
              HasSubstr("test loss 0.2500 at step 1,173"));
}

TEST(TopViewTest, NoLineIsLongerThanTheTerminal) {
  for (const int workers : {1, 2, 64}) {
    for (const int width : {40, 60, 79, 120, 199}) {
      Json status = Status(workers);
      status["waits"] =
          "step 1234 has waited 12 s: no loss from rank 1 (host lab3, pid 901); the "
          "limit is 60 s";
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
  Json status = Status(64);
  status["ranks"][40]["images_per_second"] = 100;
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

TEST(TopViewTest, ValuesOfOtherTypesAreAsIfTheyWereNotThere) {
  const std::vector<std::string> plain = TopLines({{"state", "training"}}, kLive, {});
  Json odd{{"state", "training"}};
  for (const char* key : {"server", "slowest", "ranks", "checkpoint", "total_steps", "step"}) {
    odd[key] = "text";
  }
  odd.erase("checkpoint");  // the status shows that there is one
  EXPECT_EQ(TopLines(odd, kLive, {}), plain);
  odd["ranks"] = {1, "two", nullptr};
  odd["step"] = 1e300;
  odd["total_steps"] = 1e-300;
  EXPECT_GT(TopLines(odd, kLive, {}).size(), plain.size());
}

// Escape sequences in the file must not reach the reader's terminal.
TEST(TopViewTest, NothingOfTheFileIsForTheTerminal) {
  Json status = Status(1);
  for (const char* key : {"state", "waits"}) status[key] = "\x1b[2J\n";
  status["server"]["host"] = status["ranks"][0]["host"] = "\x1b]0;x\x07";
  for (const std::string& line : TopLines(status, kLive, {.width = 199})) {
    EXPECT_TRUE(std::ranges::all_of(line, [](char c) { return c >= ' ' && c <= '~'; })) << line;
  }
}

TEST(TopViewTest, ARankWhoseRateIsNotKnownIsAmongTheSlowest) {
  Json status = Status(64);
  status["ranks"][40].erase("images_per_second");
  EXPECT_THAT(Screen(status, {.height = 24}), HasSubstr("    40  "));
}

TEST(TopViewTest, HowARunIs) {
  Json status = Status(1);
  EXPECT_THAT(Screen(status, {}, {.name = "a"}), HasSubstr("killed while training"));
  EXPECT_THAT(Screen(status, {}, {"a", RunState::kRunning, 42}),
              HasSubstr("training, as of 42 s ago"));
  const TopRun full{
      .name = "a", .state = RunState::kRunning, .age_s = 42, .disk = "its disk is full"};
  EXPECT_THAT(Screen(status, {}, full), HasSubstr("this status is old: its disk is full"));
  // The disk was too full for the last status, but not for the last line of metrics.
  EXPECT_THAT(Screen(status, {}, {"a", RunState::kCompleted}), HasSubstr("a  completed"));
  status["state"] = "completed";
  EXPECT_THAT(Screen(status, {}, {.name = "a", .age_s = 4200}), HasSubstr("a  completed"));
  // A file of another version or almost empty.
  EXPECT_FALSE(TopLines(Json::object(), kLive, {}).empty());
}

}  // namespace
}  // namespace muster
