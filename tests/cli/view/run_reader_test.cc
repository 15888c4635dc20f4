// Reads run directories that are complete, cut off, or still running.
#include "cli/view/run_reader.h"

#include <fmt/core.h>
#include <gmock/gmock-matchers.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>

#include "common/base/error.h"
#include "common/base/process.h"
#include "common/events/event_log.h"
#include "tests/cli/view/run_files.h"

namespace muster::testing {
namespace {

using ::testing::ElementsAre;

class RunReaderTest : public RunFiles {
 protected:
  RunRecord With(const std::vector<std::string>& metrics, const std::string& status) {
    const std::string dir = MakeRun("r", metrics);
    WriteStatus("r", status);
    return ReadRun(dir);
  }
  // A status of this process or, with another start time, of an earlier process with its PID.
  std::string Status(uint64_t started, const std::string& host = HostName(), double age_s = 0,
                     const std::string& more = "", int step = 42) {
    const double now =
        std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
    return fmt::format(
        R"(unix_time: {:.3f} {} progress {{ at {{ step: {} elapsed_s: 5 }} total_steps: 100 }}
           ranks {{}} ranks {{}} ranks {{}}
           server {{ host: "{}" pid: {} started: {} }})",
        now - age_s, more, step, host, ::getpid(), started);
  }
};

TEST_F(RunReaderTest, ACompletedRun) {
  const RunRecord run =
      ReadRun(MakeRun("a", {IntervalText(50, 1.5), EvaluationText(50, 0.7), IntervalText(100, 0.5),
                            EvaluationText(100, 0.6), FinalText(100, "completed")}));
  EXPECT_EQ(run.name, "a");
  EXPECT_EQ(run.state, RunState::kCompleted);
  EXPECT_EQ(run.steps, 100);
  EXPECT_EQ(run.total_steps, 100);
  EXPECT_EQ(run.workers, 2);
  EXPECT_EQ(run.latest.test.accuracy, 0.6);
  EXPECT_EQ(run.latest.test.best_accuracy, 0.7);
  EXPECT_EQ(run.weights_hash, "00112233445566ff");
  EXPECT_EQ(run.rows.size(), 4u);  // the last line is a summary, not a row
  EXPECT_EQ(run.began.size(), std::string("2026-01-31 12:00").size());
}

TEST_F(RunReaderTest, ARunWithAValidationSet) {
  std::vector<std::string> lines{ValidationText(50, 0.7), ValidationText(100, 0.6),
                                 EvaluationText(100, 0.9)};
  const RunRecord run = ReadRun(MakeRun("v", lines));
  EXPECT_TRUE(run.validates());
  EXPECT_EQ(run.latest.validation.accuracy, 0.6);
  EXPECT_EQ(run.latest.validation.best_accuracy, 0.7);
  EXPECT_EQ(run.latest.test.accuracy, 0.9);
  EXPECT_EQ(run.latest.test.best_accuracy, std::nullopt);
  EXPECT_EQ(run.accuracy(), 0.6);  // the run is not known to have ended
  lines.push_back(FinalText(100, "completed"));
  EXPECT_EQ(ReadRun(MakeRun("v", lines)).accuracy(), 0.9);
  lines.push_back(IntervalText(110, 1));  // extended and killed
  EXPECT_EQ(ReadRun(MakeRun("v", lines)).accuracy(), 0.6);
  EXPECT_EQ(ReadRun(MakeRun("v", lines)).latest.test.accuracy, std::nullopt);
}

// The lines contain impossible steps and times.
TEST_F(RunReaderTest, NumbersThatAreNone) {
  const RunRecord run = ReadRun(MakeRun(
      "n",
      {R"({"time":"-9999999-99-31T12:00:05Z","step":1e300,"total_steps":-1e300,"elapsed_s":1e300})",
       R"({"time":"2026-01-31T12:00:05Z","step":3,"elapsed_s":1e300})"}));
  EXPECT_EQ(run.steps, 3);
  EXPECT_EQ(run.total_steps, std::nullopt);
  EXPECT_EQ(run.began, "");
}

// The value has another type, or holds control characters for a terminal.
TEST_F(RunReaderTest, AValueThatNoRunWrites) {
  EXPECT_EQ(ReadRun(MakeRun("t", {IntervalText(3, 1), R"({"step":4,"final":"yes"})"})).state,
            RunState::kKilled);
  const RunRecord run = ReadRun(MakeRun(
      "h", {R"({"step":4,"final":true,"reason":"completed","weights_hash":"\u001b[2Jx"})"}));
  EXPECT_EQ(run.state, RunState::kCompleted);
  EXPECT_EQ(run.weights_hash, "?[2Jx");
}

TEST_F(RunReaderTest, HowARunEnded) {
  EXPECT_EQ(ReadRun(MakeRun("f", {FinalText(3, "failed")})).state, RunState::kFailed);
  EXPECT_EQ(ReadRun(MakeRun("i", {FinalText(3, "interrupted")})).state, RunState::kInterrupted);
  EXPECT_EQ(ReadRun(MakeRun("k", {IntervalText(3, 1)})).state, RunState::kKilled);
  EXPECT_EQ(ReadRun(MakeRun("n", {})).state, RunState::kNotBegun);
}

TEST_F(RunReaderTest, AFullDiskMayHaveTakenTheEnd) {
  const std::string full =
      "server warning: metrics.jsonl: cannot be written: No space left on device\n";
  EXPECT_EQ(ReadRun(MakeRun("d", {IntervalText(3, 1)})).state, RunState::kKilled);
  Write("d/server.log", full + "server info: step 4\n");
  EXPECT_EQ(ReadRun(Dir() + "/d").state, RunState::kDiskFull);
  Write("d/metrics.jsonl", "");
  EXPECT_EQ(ReadRun(Dir() + "/d").state, RunState::kDiskFull);
  Write("d/server.log", full + "server info: checkpoints are written again\n");
  EXPECT_EQ(ReadRun(Dir() + "/d").state, RunState::kNotBegun);
  EXPECT_EQ(ReadRun(MakeRun("e", {FinalText(3, "completed")})).state, RunState::kCompleted);
  Write("e/server.log", full);
  EXPECT_EQ(ReadRun(Dir() + "/e").state, RunState::kDiskFull);
  Write("e/model.safetensors", "");
  EXPECT_EQ(ReadRun(Dir() + "/e").state, RunState::kCompleted);
}

TEST_F(RunReaderTest, AnEventIsNoRow) {
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

TEST_F(RunReaderTest, ARunWhoseServerLivesIsRunning) {
  const RunRecord run = With({IntervalText(40, 1)}, Status(ThisProcess().started));
  EXPECT_EQ(run.state, RunState::kRunning);
  EXPECT_EQ(run.steps, 42);  // later than its last interval
  EXPECT_EQ(run.total_steps, 100);
  EXPECT_EQ(run.workers, 3);
}

TEST_F(RunReaderTest, OfAnotherHostTheAgeDecides) {
  const std::vector<std::string> metrics{IntervalText(40, 1)};
  EXPECT_EQ(With(metrics, Status(1, "another.host.example")).state, RunState::kRunning);
  EXPECT_EQ(With(metrics, Status(1, "another.host.example", 3600)).state, RunState::kKilled);
}

// Somebody changed the lines.
TEST_F(RunReaderTest, OfARunWithEventsTheyCount) {
  const std::string dir = MakeRun("r", {IntervalText(40, 1), "{"});
  WriteStatus("r", Status(ThisProcess().started));
  std::filesystem::resize_file(dir + "/run.events", kFirstRecord);
  events::Event begun, interval;
  begun.mutable_begun();
  interval.mutable_log()->mutable_at()->set_step(30);
  std::ofstream log(dir + "/run.events", std::ios::app);
  log << LogRecord(interval) << std::flush;
  EXPECT_EQ(ReadRun(dir).rows.back().step, 40);  // the server has not begun
  log << LogRecord(begun) << LogRecord(interval) << std::flush;
  const RunRecord run = ReadRun(dir);
  EXPECT_EQ(run.rows.size(), 1u);
  EXPECT_EQ(run.rows[0].step, 30);
  EXPECT_EQ(run.unreadable_lines, 0);
  EXPECT_EQ(run.steps, 42);
}

// The run was resumed, or could not write its last line or status.
TEST_F(RunReaderTest, AStatusIsNewerThanTheLastLine) {
  const auto state = [&](const std::vector<std::string>& metrics, uint64_t started,
                         const std::string& more, int step = 0) {
    return With(metrics, Status(started, HostName(), 0, more, step)).state;
  };
  const uint64_t here = ThisProcess().started, gone = here + 1;
  const std::vector<std::string> ended{FinalText(7, "interrupted")};
  EXPECT_EQ(state(ended, here, R"(state: "gathering")"), RunState::kRunning);
  EXPECT_EQ(state(ended, here, R"(state: "completed")"), RunState::kCompleted);
  EXPECT_EQ(state(ended, gone, R"(state: "failed")"), RunState::kFailed);
  EXPECT_EQ(state(ended, gone, R"(state: "training")"), RunState::kInterrupted);
  EXPECT_EQ(state({IntervalText(7, 1)}, gone, R"(state: "completed")"), RunState::kCompleted);
  // Extending the run was refused.
  const std::vector<std::string> complete{FinalText(7, "completed")};
  EXPECT_EQ(state(complete, gone, R"(state: "failed")"), RunState::kCompleted);
  EXPECT_EQ(state(complete, here, R"(state: "gathering")"), RunState::kRunning);
  std::filesystem::remove(Dir() + "/r/metrics.jsonl");
  EXPECT_EQ(state({}, gone, R"(state: "failed")"), RunState::kNotBegun);
  EXPECT_EQ(state({}, gone, R"(state: "failed")", 3), RunState::kFailed);
}

TEST_F(RunReaderTest, TheLastLineAndTheBestEvaluation) {
  const RunRecord run = ReadRun(MakeRun(
      "e", {EvaluationText(50, 0.7), EvaluationText(100, 0.6),
            R"({"step":100,"final":true,)"
            R"("reason":"completed","best_step":50,"models":[{"file":"model.safetensors"},3]})"}));
  EXPECT_EQ(run.end.value().best_step, 50);
  EXPECT_THAT(run.end.value().weights, ElementsAre("model.safetensors"));
  EXPECT_EQ(run.best()->step, 50);
  EXPECT_EQ(
      ReadRun(MakeRun("v", {LossText(5, "test", 0.7), LossText(9, "test", 0.6)})).best()->step, 9);
}

TEST_F(RunReaderTest, ALossThatIsNotFiniteIsNeverTheBest) {
  const RunRecord run =
      ReadRun(MakeRun("n", {ValidationText(50, 0.7),
                            R"({"step":60,"validation_loss":null,"validation_accuracy":0.9})",
                            FinalText(60, "x")}));
  EXPECT_TRUE(run.validates());
  EXPECT_EQ(run.best()->step, 50);
  EXPECT_EQ(run.latest.validation.best_accuracy, 0.7);
  EXPECT_TRUE(std::isnan(run.latest.validation.loss.value()));
  EXPECT_EQ(ReadRun(MakeRun("o", {R"({"step":9,"test_loss":null,"test_accuracy":null})"})).best(),
            nullptr);
}

TEST_F(RunReaderTest, AFileThatIsNoStatusIsNoReasonToShowNothing) {
  const std::string dir = MakeRun("r", {IntervalText(40, 1)});
  Write("r/run.events", "no status");
  EXPECT_EQ(ReadRun(dir).state, RunState::kKilled);
}

// JSON trees are copied and printed recursively.
TEST_F(RunReaderTest, NoFileIsSoDeepThatTheStackOverflows) {
  const std::string deep(500'000, '[');
  const std::string dir = MakeRun("r", {IntervalText(40, 1), R"({"step": 50, "final": )" + deep});
  EXPECT_EQ(ReadRun(dir).state, RunState::kKilled);
  EXPECT_EQ(ReadRun(dir).unreadable_lines, 1);
}

TEST_F(RunReaderTest, ATimeThatNoClockHasIsNoTime) {
  for (const char* time : {"2026--2147483648-01T00:00:00Z", "99999999999-01-01T00:00:00Z",
                           "-2147483648-01-01T00:00:00Z", "2026-01-01T00:00:x"}) {
    const std::string line = fmt::format(R"({{"step": 1, "elapsed_s": 1, "time": "{}"}})", time);
    EXPECT_EQ(ReadRun(MakeRun("r", {line})).began, "") << time;
  }
}

TEST_F(RunReaderTest, ALineThatIsBeingWrittenIsLeftOutAndABrokenOneCounted) {
  const std::string dir = MakeRun("c", {IntervalText(10, 1), "{\"step\":2", IntervalText(20, 1)});
  EXPECT_EQ(ReadRun(dir).unreadable_lines, 1);
  Write("c/metrics.jsonl", IntervalText(10, 1) + "\n{\"step\":2");
  EXPECT_EQ(ReadRun(dir).unreadable_lines, 0);
  EXPECT_EQ(ReadRun(dir).rows.size(), 1u);
}

TEST_F(RunReaderTest, StepsThatWereRepeatedCountOnce) {
  const RunRecord run =
      ReadRun(MakeRun("again", {IntervalText(10, 3), IntervalText(20, 2), IntervalText(30, 1),
                                IntervalText(20, 2.5), IntervalText(30, 1.5)}));
  std::vector<int64_t> steps;
  std::vector<double> losses;
  for (const MetricsRow& row : run.rows) {
    steps.push_back(row.step);
    losses.push_back(row.train_loss.value_or(0));
  }
  EXPECT_THAT(steps, ElementsAre(10, 20, 30));
  EXPECT_THAT(losses, ElementsAre(3, 2.5, 1.5));
}

TEST_F(RunReaderTest, RunsAreFoundBelowADirectory) {
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

TEST_F(RunReaderTest, TheNewestRunIsTheLast) {
  // All began within a minute; "a" has just begun.
  const auto line = [](const char* time) {
    return fmt::format(R"({{"step": 9, "elapsed_s": 0.25, "time": "2026-01-31T12:00:{}Z"}})", time);
  };
  MakeRun("a", {});
  MakeRun("d", {line("10.1"), line("59.0")});
  MakeRun("c", {line("10.2")});
  MakeRun("b", {line("9.9")});
  std::vector<std::string> names, troubles;
  for (const RunRecord& run : FindRuns(Dir(), troubles)) names.push_back(run.name);
  EXPECT_THAT(names, ElementsAre("b", "d", "c", "a"));
}

TEST_F(RunReaderTest, ARunWhoseMetricsAreAPipeIsLeftOut) {
  MakeRun("one", {FinalText(1, "completed")});
  MakeRun("two", {});
  ASSERT_EQ(::mkfifo((Dir() + "/two/metrics.jsonl").c_str(), 0600), 0);
  std::vector<std::string> troubles;
  EXPECT_EQ(FindRuns(Dir(), troubles).size(), 1u);
  EXPECT_THAT(troubles, ElementsAre(::testing::HasSubstr("two/metrics.jsonl: is a pipe")));
}

}  // namespace
}  // namespace muster::testing
