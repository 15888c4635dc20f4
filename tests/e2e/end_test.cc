// Every job ends in time, with an error and an exit code, and leaves no processes.
#include <fmt/core.h>
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <random>
#include <thread>

#include "common/base/error.h"
#include "common/base/text.h"
#include "common/tensors/safetensors_reader.h"
#include "tests/base/paths.h"
#include "tests/e2e/real_job.h"
#include "tests/e2e/small_disk.h"

namespace muster::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class End : public RealJob {
 protected:
  // Starts a long job and waits for its first steps.
  std::unique_ptr<Process> Running(std::vector<std::string> settings = {}) {
    settings.push_back("run.epochs=100000");
    settings.push_back("evaluation.every_epochs=0");
    auto job = Start("run", settings);
    EXPECT_TRUE(Reaches("run", 3 + static_cast<int64_t>(std::random_device()() % 30)));
    return job;
  }
};

TEST_F(End, AKilledWorkerIsNamed) {
  const auto job = Running({"cluster.on_lost_worker=ABORT"});
  const pid_t worker = Find("run", 1);
  ASSERT_GT(worker, 0);
  ::kill(worker, SIGKILL);
  EXPECT_EQ(job->Wait(15), Code(ExitCode::kProcessDied));
  EXPECT_THAT(job->Log(),
              AllOf(HasSubstr("1"), HasSubstr(std::to_string(worker)), HasSubstr("SIGKILL")));
  EXPECT_TRUE(NothingLeft(5));
}

TEST_F(End, AKilledServerIsNamed) {
  const auto job = Running({"run.max_restarts=0"});
  const pid_t server = Find("run", -1);
  ASSERT_GT(server, 0);
  ::kill(server, SIGKILL);
  EXPECT_EQ(job->Wait(15), Code(ExitCode::kProcessDied));
  EXPECT_THAT(job->Log(),
              AllOf(HasSubstr("server"), HasSubstr(std::to_string(server)), HasSubstr("SIGKILL"),
                    HasSubstr("it was not restarted: run.max_restarts is 0")));
  EXPECT_TRUE(NothingLeft(5));
}

TEST_F(End, AStoppedWorkerRunsIntoTheSilenceDeadline) {
  const auto job =
      Running({"deadlines.silence_s=2", "cluster.on_lost_worker=ABORT", "cluster.transport=TCP"});
  const pid_t worker = Find("run", 0);
  ASSERT_GT(worker, 0);
  ::kill(worker, SIGSTOP);
  EXPECT_EQ(job->Wait(20), Code(ExitCode::kDeadline)) << job->Log();
  EXPECT_THAT(job->Log(), HasSubstr(fmt::format("; rank 0 (pid {}) is stopped", worker)));
  EXPECT_TRUE(NothingLeft(5));
}

// The run is complete, so it counts as successful.
TEST_F(End, AWorkerThatIsStoppedAtTheVeryEndIsKilled) {
  if (!kCanPreload) GTEST_SKIP() << "LD_PRELOAD does not work with a sanitizer's runtime";
  const Outcome whole = Launch({});
  Process job(LaunchWords(Path("tiny.txtpb"), Path("data"), Path("run"), {}), Path("run.log"),
              {.environment = {{"LD_PRELOAD", FaultsLibrary()},
                               {"MUSTER_FAULT", "stop"},
                               {"MUSTER_FAULT_ONCE", Path("once")}}});
  EXPECT_EQ(job.Wait(30), 0) << job.Log();
  EXPECT_EQ(Metrics("run").back()["weights_hash"], whole.hash());
  EXPECT_TRUE(NothingLeft(5));
}

// Only the launcher can notice it.
TEST_F(End, AJobThatIsStoppedAsAWholeEnds) {
  const auto job = Running({"run.max_restarts=0", "deadlines.silence_s=2"});
  const pid_t server = Find("run", -1), first = Find("run", 0), second = Find("run", 1);
  ASSERT_TRUE(server > 0 && first > 0 && second > 0);
  for (const pid_t pid : {first, second, server}) ::kill(pid, SIGSTOP);
  EXPECT_EQ(job->Wait(20), Code(ExitCode::kDeadline)) << job->Log();
  EXPECT_THAT(job->Log(), AllOf(HasSubstr(fmt::format("muster: error: server (pid {})", server)),
                                HasSubstr("has been silent for"),
                                HasSubstr("it is stopped (SIGSTOP?), and so are ranks 0 and 1")));
  EXPECT_TRUE(NothingLeft(5));
}

// Like a notebook that sleeps or a frozen container. Time during which a process was suspended does
// not count as silence of others, whichever process wakes first.
TEST_F(End, AJobThatSleepsTogetherWithItsLauncherGoesOn) {
  const auto job =
      Running({"deadlines.silence_s=3", "deadlines.step_s=3", "cluster.transport=TCP"});
  std::vector<pid_t> all{job->pid(), Find("run", -1), Find("run", 0), Find("run", 1)};
  ASSERT_GT(*std::min_element(all.begin(), all.end()), 0);
  const int64_t step = Metrics("run").back()["step"];
  for (const pid_t pid : all) ::kill(pid, SIGSTOP);
  std::this_thread::sleep_for(std::chrono::seconds(8));  // more than silence_s and all margins
  for (const pid_t pid : all) {
    ::kill(pid, SIGCONT);
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
  EXPECT_TRUE(Reaches("run", step + 200)) << job->Log();
  EXPECT_EQ(job->EndBy(SIGINT, 10), Code(ExitCode::kInterrupted)) << job->Log();
  EXPECT_TRUE(NothingLeft(2));
}

TEST_F(End, ARunDirectoryThatIsRemovedIsNoSuccess) {
  const auto job = Start("run", {"run.steps=3000", "evaluation.every_epochs=0"});
  ASSERT_TRUE(Reaches("run", 3));
  // Renamed first, because the server still writes files there.
  std::filesystem::rename(Path("run"), Path("gone"));
  std::filesystem::remove_all(Path("gone"));
  EXPECT_EQ(job->Wait(60), Code(ExitCode::kFailure)) << job->Log();
  EXPECT_THAT(job->Log(),
              AllOf(HasSubstr("Warning: "), HasSubstr("metrics.jsonl was removed"),
                    HasSubstr("Completed: 3,000 steps"), HasSubstr("weights hash"),
                    HasSubstr("model.safetensors: cannot be created"),
                    HasSubstr("missing config.txtpb, metrics.jsonl, run.events, server.log, "),
                    Not(HasSubstr("--resume")), Not(HasSubstr("/config.txtpb"))));
  EXPECT_TRUE(NothingLeft(2));
}

// Messages name the current directory.
TEST_F(End, ARunDirectoryThatIsMovedIsFollowed) {
  const auto job = Running({"checkpoint.every_steps=1"});
  EXPECT_TRUE(Eventually(20, [&] {
    std::error_code none;
    for (const auto& entry : std::filesystem::directory_iterator(Path("run/checkpoints"), none)) {
      const std::string name = entry.path().filename();
      if (name.starts_with("step-") && !name.ends_with(".partial")) return true;
    }
    return false;
  }));
  std::filesystem::rename(Path("run"), Path("moved"));
  EXPECT_EQ(job->EndBy(SIGINT, 60), Code(ExitCode::kInterrupted)) << job->Log();
  EXPECT_THAT(job->Log(),
              ::testing::ContainsRegex("To resume from step [0-9,]+: muster launch --resume " +
                                       std::filesystem::canonical(Path("moved")).string()));
  EXPECT_THAT(job->Log(), Not(HasSubstr("--resume " + Path("run").string())));
  EXPECT_TRUE(NothingLeft(2));
}

TEST_F(End, SignalsStopEverything) {
  for (const auto& [signal, code] : std::map<int, ExitCode>{{SIGINT, ExitCode::kInterrupted},
                                                            {SIGTERM, ExitCode::kTerminated}}) {
    const auto job = Running();
    EXPECT_EQ(job->EndBy(signal, 10), Code(code)) << job->Log();
    EXPECT_TRUE(NothingLeft(2));
    const auto last = Metrics("run").back();
    EXPECT_EQ(last["reason"], "interrupted");
    EXPECT_EQ(last["final"], true);
    // The weights exist and match the hash.
    ASSERT_EQ(last["models"].size(), 1u) << last;
    EXPECT_EQ(last["models"][0]["step"], last["step"]);
    EXPECT_EQ(std::filesystem::path(last["models"][0]["file"].get<std::string>()).filename(),
              "model.safetensors");
    const SafetensorsReader model(Path("run") / "model.safetensors");
    EXPECT_EQ(model.header().metadata.at("weights_hash"), last["weights_hash"].get<std::string>());
    std::filesystem::remove_all(Path("run"));
  }
}

// A service manager sends SIGTERM, and then SIGHUP, to all processes of a session that ends.
TEST_F(End, SignalsToAllProcessesSaveTheRun) {
  for (const std::vector<int>& signals : {std::vector{SIGHUP}, {SIGTERM, SIGHUP}}) {
    const auto job = Running({"checkpoint.every_steps=1000000"});
    const std::vector<pid_t> all{job->pid(), Find("run", -1), Find("run", 0), Find("run", 1)};
    ASSERT_GT(*std::min_element(all.begin(), all.end()), 0);
    for (const int signal : signals) {
      for (const pid_t pid : all) ::kill(pid, signal);
    }
    EXPECT_EQ(job->Wait(20), Code(ExitCode::kTerminated)) << job->Log();
    EXPECT_TRUE(NothingLeft(2));
    const auto last = Metrics("run").back();
    EXPECT_EQ(last["reason"], "interrupted");
    EXPECT_GE(last["step"], 3);
    EXPECT_THAT(job->Log(), HasSubstr(fmt::format("To resume from step {}:",
                                                  FormatCount(last["step"].get<int64_t>()))));
    std::filesystem::remove_all(Path("run"));
  }
}

// As under nohup, in the background of a shell script.
TEST_F(End, SignalsThatTheUserIgnoresReachNoProcess) {
  for (const int signal : {SIGHUP, SIGINT}) std::signal(signal, SIG_IGN);  // inherited
  const auto job = Running();
  for (const int signal : {SIGHUP, SIGINT}) std::signal(signal, SIG_DFL);
  for (const pid_t pid : {job->pid(), Find("run", -1), Find("run", 0), Find("run", 1)}) {
    ASSERT_GT(pid, 0);
    for (const int signal : {SIGHUP, SIGINT}) ::kill(pid, signal);
  }
  EXPECT_TRUE(Reaches("run", Metrics("run").back()["step"].get<int64_t>() + 100)) << job->Log();
  EXPECT_EQ(job->EndBy(SIGTERM, 20), Code(ExitCode::kTerminated)) << job->Log();
  EXPECT_THAT(job->Log(), Not(HasSubstr("Lost rank")));
}

// The second one would train the same steps and replace the first one's files.
TEST_F(End, WithoutLocksADirectoryInUseIsRefusedAsWell) {
  if (!kCanPreload) GTEST_SKIP() << "LD_PRELOAD does not work with a sanitizer's runtime";
  const ProcessOptions without{
      .environment = {{"LD_PRELOAD", FaultsLibrary()}, {"MUSTER_FAULT", "flock"}}};
  const std::vector<std::string> resume{"muster", "launch", "--resume", Path("run")};
  Process first(LaunchWords(Path("tiny.txtpb"), Path("data"), Path("run"),
                            {"run.epochs=100000", "checkpoint.every_steps=5"}),
                Path("run.log"), without);
  ASSERT_TRUE(Reaches("run", 10)) << first.Log();
  Process second(resume, Path("second.log"), without);
  EXPECT_EQ(second.Wait(20), Code(ExitCode::kUsage)) << second.Log();
  EXPECT_THAT(second.Log(), HasSubstr(fmt::format("in use by another muster launch (pid {} on host",
                                                  first.pid())));
  EXPECT_EQ(first.EndBy(SIGKILL, 10), 128 + SIGKILL);
  const int64_t last = Metrics("run").back()["step"];
  Process third(resume, Path("third.log"), without);
  EXPECT_TRUE(Reaches("run", last + 50)) << third.Log();
  EXPECT_EQ(third.EndBy(SIGTERM, 30), Code(ExitCode::kTerminated)) << third.Log();
}

TEST_F(End, ADivergedRunNamesRankAndStep) {
  const Outcome outcome = Launch({"learning_rate.base=100000", "run.epochs=50"});
  EXPECT_EQ(outcome.exit_code, Code(ExitCode::kNonfinite)) << outcome.log;
  EXPECT_EQ(outcome.metrics.back()["reason"], "failed");
  EXPECT_THAT(
      outcome.log,
      AllOf(ContainsRegex("rank [01]"), Not(HasSubstr("-nan")),
            HasSubstr(fmt::format("step {}", outcome.metrics.back()["step"].get<int64_t>()))));
}

// The weights are finite but the loss is not. No step can succeed, so the run gives up.
TEST_F(End, ARunThatSkipsEveryStepGivesUp) {
  const std::string huge = ".weights={ initializer { type: CONSTANT value: 1e30 } }";
  const Outcome outcome =
      Launch({"model.layer[out].dense" + huge, "model.layer[hidden].dense" + huge,
              "run.on_nonfinite=SKIP_STEP", "run.max_skipped_steps=4"});
  EXPECT_EQ(outcome.exit_code, Code(ExitCode::kNonfinite)) << outcome.log;
  EXPECT_EQ(outcome.metrics.back()["skipped_steps"], 4) << outcome.log;
  EXPECT_THAT(outcome.log, AllOf(HasSubstr("Skipped step"), HasSubstr("4 in a row"),
                                 HasSubstr("max_skipped_steps")));
}

}  // namespace
}  // namespace muster::testing
