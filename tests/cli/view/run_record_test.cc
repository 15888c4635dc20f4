// What a run directory tells, whole, cut off, or of a run that goes on.
#include "cli/view/run_record.h"

#include <fmt/core.h>
#include <gmock/gmock-matchers.h>
#include <unistd.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "common/base/error.h"
#include "common/base/process.h"
#include "tests/cli/view/run_files.h"

namespace muster::testing {
namespace {

using ::testing::ElementsAre;

class RunRecordTest : public RunFiles {
 protected:
  // A status as this process would write it, or, with another start, one that had its number.
  std::string Status(uint64_t started, const std::string& host = HostName(), double age_s = 0) {
    const double now =
        std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
    return fmt::format(
        R"({{"unix_time":{:.3f},"step":42,"total_steps":100,"elapsed_s":5,"ranks":[{{}},{{}},{{}}],)"
        R"("server":{{"host":"{}","pid":{},"started":{}}}}})",
        now - age_s, host, ::getpid(), started);
  }
};

TEST_F(RunRecordTest, ACompletedRun) {
  const RunRecord run =
      ReadRun(MakeRun("a", {IntervalText(50, 1.5), EvaluationText(50, 0.7), IntervalText(100, 0.5),
                            EvaluationText(100, 0.6), FinalText(100, "completed")}));
  EXPECT_EQ(run.name, "a");
  EXPECT_EQ(run.state, RunState::kCompleted);
  EXPECT_EQ(run.steps, 100);
  EXPECT_EQ(run.total_steps, 100);
  EXPECT_EQ(run.workers, 2);
  EXPECT_EQ(run.test_accuracy, 0.6);
  EXPECT_EQ(run.best_test_accuracy, 0.7);
  EXPECT_EQ(run.weights_hash, "00112233445566ff");
  EXPECT_EQ(run.rows.size(), 4u);  // the last line is a summary, not a row
  EXPECT_EQ(run.began.size(), std::string("2026-01-31 12:00").size());
}

TEST_F(RunRecordTest, ARunWithAValidationSet) {
  std::vector<std::string> lines{ValidationText(50, 0.7), ValidationText(100, 0.6),
                                 EvaluationText(100, 0.9)};
  const RunRecord run = ReadRun(MakeRun("v", lines));
  EXPECT_TRUE(run.validates());
  EXPECT_EQ(run.validation_accuracy, 0.6);
  EXPECT_EQ(run.best_validation_accuracy, 0.7);
  EXPECT_EQ(run.test_accuracy, 0.9);
  EXPECT_EQ(run.best_test_accuracy, std::nullopt);
  EXPECT_EQ(run.accuracy(), 0.6);  // it is not known to have ended
  lines.push_back(FinalText(100, "completed"));
  EXPECT_EQ(ReadRun(MakeRun("v", lines)).accuracy(), 0.9);
  lines.push_back(IntervalText(110, 1));  // made longer, and killed
  EXPECT_EQ(ReadRun(MakeRun("v", lines)).accuracy(), 0.6);
  EXPECT_EQ(ReadRun(MakeRun("v", lines)).test_accuracy, std::nullopt);
}

// Whatever a line says: there is no such step, and no such day.
TEST_F(RunRecordTest, NumbersThatAreNone) {
  const RunRecord run = ReadRun(MakeRun(
      "n",
      {R"({"time":"-9999999-99-31T12:00:05Z","step":1e300,"total_steps":-1e300,"elapsed_s":1e300})",
       R"({"time":"2026-01-31T12:00:05Z","step":3,"elapsed_s":1e300})"}));
  EXPECT_EQ(run.steps, 3);
  EXPECT_EQ(run.total_steps, std::nullopt);
  EXPECT_EQ(run.began, "");
}

// Of another type, or for a terminal rather than its reader.
TEST_F(RunRecordTest, AValueThatNoRunWrites) {
  EXPECT_EQ(ReadRun(MakeRun("t", {IntervalText(3, 1), R"({"step":4,"final":"yes"})"})).state,
            RunState::kKilled);
  const RunRecord run = ReadRun(MakeRun(
      "h", {R"({"step":4,"final":true,"reason":"completed","weights_hash":"\u001b[2Jx"})"}));
  EXPECT_EQ(run.state, RunState::kCompleted);
  EXPECT_EQ(run.weights_hash, "?[2Jx");
}

TEST_F(RunRecordTest, HowARunEnded) {
  EXPECT_EQ(ReadRun(MakeRun("f", {FinalText(3, "failed")})).state, RunState::kFailed);
  EXPECT_EQ(ReadRun(MakeRun("i", {FinalText(3, "interrupted")})).state, RunState::kInterrupted);
  EXPECT_EQ(ReadRun(MakeRun("k", {IntervalText(3, 1)})).state, RunState::kKilled);
  EXPECT_EQ(ReadRun(MakeRun("n", {})).state, RunState::kNotBegun);
}

TEST_F(RunRecordTest, AnEventIsNoRow) {
  const std::string event =
      R"({"time":"2026-01-31T12:00:05.123Z","event":"server_restarted","lost_at_step":120,)"
      R"("cause":"signal 9","from_step":100,"seconds":1.5})";
  const RunRecord run =
      ReadRun(MakeRun("e", {IntervalText(50, 1.5), event, FinalText(100, "completed"), event}));
  EXPECT_EQ(run.state, RunState::kCompleted);
  EXPECT_EQ(run.rows.size(), 1u);
  EXPECT_EQ(run.steps, 100);
  EXPECT_EQ(run.server_restarts, 2);
  EXPECT_EQ(run.unreadable_lines, 0);
}

TEST_F(RunRecordTest, ARunWhoseServerLivesIsRunning) {
  const std::string dir = MakeRun("r", {IntervalText(40, 1)});
  Write("r/status.json", Status(ThisProcess().started));
  const RunRecord run = ReadRun(dir);
  EXPECT_EQ(run.state, RunState::kRunning);
  EXPECT_EQ(run.steps, 42);  // further than its last interval
  EXPECT_EQ(run.total_steps, 100);
  EXPECT_EQ(run.workers, 3);
}

TEST_F(RunRecordTest, AnotherProcessWithTheServersNumberIsNotTheServer) {
  const std::string dir = MakeRun("r", {IntervalText(40, 1)});
  Write("r/status.json", Status(ThisProcess().started + 1));
  EXPECT_EQ(ReadRun(dir).state, RunState::kKilled);
  EXPECT_EQ(ReadRun(dir).steps, 40);
}

TEST_F(RunRecordTest, OfAnotherHostTheAgeDecides) {
  const std::string dir = MakeRun("r", {IntervalText(40, 1)});
  Write("r/status.json", Status(1, "another.host.example"));
  EXPECT_EQ(ReadRun(dir).state, RunState::kRunning);
  Write("r/status.json", Status(1, "another.host.example", 3600));
  EXPECT_EQ(ReadRun(dir).state, RunState::kKilled);
}

TEST_F(RunRecordTest, AStatusDoesNotOverruleALastLine) {
  const std::string dir = MakeRun("r", {FinalText(7, "completed")});
  Write("r/status.json", Status(ThisProcess().started));
  EXPECT_EQ(ReadRun(dir).state, RunState::kCompleted);
}

TEST_F(RunRecordTest, AFileThatIsNoStatusIsNoReasonToShowNothing) {
  const std::string dir = MakeRun("r", {IntervalText(40, 1)});
  Write("r/status.json", "{\"server\": 3");
  EXPECT_EQ(ReadRun(dir).state, RunState::kKilled);
}

// A tree is copied, printed and, in the text format, parsed with recursion.
TEST_F(RunRecordTest, NoFileIsSoDeepThatTheStackOverflows) {
  const std::string deep(500'000, '[');
  const std::string dir = MakeRun("r", {IntervalText(40, 1), R"({"step": 50, "final": )" + deep});
  Write("r/status.json",
        R"({"server": {}, "ranks": )" + deep + std::string(deep.size(), ']') + "}");
  EXPECT_THROW((void)ReadStatus(dir), Error);
  std::string messages;
  for (int i = 0; i < 500'000; ++i) messages += "a{";
  for (const std::string& config : {messages, "a: " + deep}) {
    Write("r/config.txtpb", config);
    EXPECT_EQ(ReadRun(dir).state, RunState::kKilled);
    EXPECT_EQ(ReadRun(dir).unreadable_lines, 1);
  }
}

TEST_F(RunRecordTest, ATimeThatNoClockHasIsNoTime) {
  for (const char* time : {"2026--2147483648-01T00:00:00Z", "99999999999-01-01T00:00:00Z",
                           "-2147483648-01-01T00:00:00Z", "2026-01-01T00:00:x"}) {
    const std::string line = fmt::format(R"({{"step": 1, "elapsed_s": 1, "time": "{}"}})", time);
    EXPECT_EQ(ReadRun(MakeRun("r", {line})).began, "") << time;
  }
}

TEST_F(RunRecordTest, ALineThatIsBeingWrittenIsLeftOutAndABrokenOneCounted) {
  const std::string dir = MakeRun("c", {IntervalText(10, 1), "{\"step\":2", IntervalText(20, 1)});
  EXPECT_EQ(ReadRun(dir).unreadable_lines, 1);
  Write("c/metrics.jsonl", IntervalText(10, 1) + "\n{\"step\":2");
  EXPECT_EQ(ReadRun(dir).unreadable_lines, 0);
  EXPECT_EQ(ReadRun(dir).rows.size(), 1u);
}

TEST_F(RunRecordTest, StepsThatWereRepeatedCountOnce) {
  const RunRecord run =
      ReadRun(MakeRun("again", {IntervalText(10, 3), IntervalText(20, 2), IntervalText(30, 1),
                                IntervalText(20, 2.5), IntervalText(30, 1.5)}));
  std::vector<double> steps, losses;
  for (const MetricsRow& row : run.rows) {
    steps.push_back(row.step);
    losses.push_back(row.train_loss.value_or(0));
  }
  EXPECT_THAT(steps, ElementsAre(10, 20, 30));
  EXPECT_THAT(losses, ElementsAre(3, 2.5, 1.5));
}

TEST_F(RunRecordTest, RunsAreFoundBelowADirectory) {
  MakeRun("one", {FinalText(1, "completed")});
  MakeRun("five/seed-1", {FinalText(1, "completed")});
  Write("five/repeat.json", "{}");
  std::vector<std::string> names, troubles;
  for (const RunRecord& run : FindRuns(Dir(), troubles)) names.push_back(run.name);
  EXPECT_THAT(names, ElementsAre("five/seed-1", "one"));
  EXPECT_THAT(troubles, ElementsAre());
  EXPECT_THROW((void)FindRuns(Dir() + "/nowhere", troubles), Error);
  EXPECT_THROW((void)ReadRun(Dir()), Error);
}

TEST_F(RunRecordTest, ARunWhoseMetricsAreAPipeIsLeftOut) {
  MakeRun("one", {FinalText(1, "completed")});
  MakeRun("two", {});
  ASSERT_EQ(::mkfifo((Dir() + "/two/metrics.jsonl").c_str(), 0600), 0);
  std::vector<std::string> troubles;
  EXPECT_EQ(FindRuns(Dir(), troubles).size(), 1u);
  EXPECT_THAT(troubles, ElementsAre(::testing::HasSubstr("two/metrics.jsonl: is a pipe")));
}

}  // namespace
}  // namespace muster::testing
