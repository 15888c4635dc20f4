// If a server is killed, crashes or hangs, the launcher restarts it, and the run ends with the same
// bits.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "tests/base/paths.h"
#include "tests/cli/text/unwrapped.h"
#include "tests/e2e/real_job.h"
#include "tests/e2e/small_disk.h"

namespace muster::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

using Lines = std::vector<nlohmann::json>;

class LostServer : public RealJob {
 protected:
  // Kills the current server as soon as the run has reached this step.
  pid_t Kill(int64_t step, int signal, pid_t not_this_one = -1) {
    EXPECT_TRUE(Reaches("run", step));
    pid_t server = -1;
    EXPECT_TRUE(Eventually(20, [&] {
      server = Find("run", -1);
      return server > 0 && server != not_this_one;
    }));
    EXPECT_EQ(::kill(server, signal), 0);
    return server;
  }
  Outcome End(Process& job, double seconds = 60) {
    Outcome outcome{.exit_code = job.Wait(seconds), .log = job.Log(), .metrics = Metrics("run")};
    EXPECT_TRUE(NothingLeft(5));
    return outcome;
  }
  // The number of processes that have written this log.
  int Starts(const std::string& log) {
    std::ifstream file(Path("run") / log);
    int starts = 0;
    for (std::string line; std::getline(file, line);) {
      starts += static_cast<int>(line.find(" info: listening on ") != std::string::npos ||
                                 line.find(" info: joining the job ") != std::string::npos);
    }
    return starts;
  }
  void ExpectNoFolderButCheckpoints() {
    for (const auto& entry : std::filesystem::directory_iterator(Path("run"))) {
      EXPECT_TRUE(!entry.is_directory() || entry.path().filename() == "checkpoints")
          << entry.path();
    }
  }
};

const std::vector<std::string> kLong{"run.epochs=100", "evaluation.every_steps=7",
                                     "optimizer.ema_decay=0.9", "evaluation.use_ema=true",
                                     "checkpoint.every_steps=5"};

std::vector<std::string> With(const std::string& setting) {
  std::vector<std::string> settings = kLong;
  settings.push_back(setting);
  return settings;
}

TEST_F(LostServer, IsStartedAgainWithTheSameBits) {
  const Outcome whole = Succeeded(Launch(kLong));
  const auto job = Start("run", With("cluster.transport=TCP"));
  const pid_t first = Kill(20, SIGKILL);
  ASSERT_TRUE(job->Says("Resumed from"));
  Kill(Metrics("run").back().value("step", 0) + 30, SIGABRT, first);
  const Outcome outcome = Succeeded(End(*job));
  EXPECT_EQ(outcome.hash(), whole.hash());
  EXPECT_EQ(Curve(WithoutEvents(outcome.metrics)), Curve(whole.metrics));
  const Lines events = Events(outcome.metrics);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0]["event"], "server_restarted");
  EXPECT_EQ(events[0]["cause"], "signal 9");
  EXPECT_EQ(events[1]["cause"], "signal 6");
  EXPECT_EQ(outcome.metrics.back()["server_restarts"], 2);
  // With a slow disk, the first restart is "from the beginning".
  EXPECT_THAT(Unwrapped(outcome.log),
              AllOf(ContainsRegex("Warning: server \\(pid [0-9]+\\) was killed by SIGKILL"),
                    ContainsRegex("Restarting from [a-z0-9 ,]+\\(restart 1 of at most 3\\)"),
                    ContainsRegex("restarts +the server was lost and restarted 2 times: at "
                                  "step [0-9,]+ \\(signal 9\\) from step ")));
  EXPECT_THAT(Muster({"runs", Path("run")}).log, HasSubstr("completed, 2 restarts"));
}

// A hung server counts as lost. Workers that time out on it are not the cause, and not lost.
TEST_F(LostServer, ThatIsStoppedIsReplaced) {
  const Outcome whole = Launch(kLong);
  std::vector<std::string> settings = With("deadlines.silence_s=2");
  settings.emplace_back("cluster.max_restarts=1");
  const auto job = Start("run", settings);
  Kill(20, SIGSTOP);
  const Outcome outcome = Succeeded(End(*job));
  EXPECT_EQ(outcome.hash(), whole.hash());
  EXPECT_EQ(Curve(WithoutEvents(outcome.metrics)), Curve(whole.metrics));
  // SIGTERM resumes it, so it may still report that its workers are gone.
  const Lines events = Events(outcome.metrics);
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.back()["event"], "server_restarted");
  EXPECT_EQ(events.back()["cause"], "silent");
  EXPECT_EQ(outcome.metrics.back()["server_restarts"], 1);
}

// There is no checkpoint yet, so the run starts again in the same directory.
TEST_F(LostServer, BeforeTheFirstCheckpointTheRunBeginsAnew) {
  if (!kCanPreload) GTEST_SKIP() << "LD_PRELOAD does not work with a sanitizer's runtime";
  const Outcome whole = Launch(kLong);
  Process job(LaunchWords(Path("tiny.txtpb"), Path("data"), Path("run"), kLong), Path("run.log"),
              {.environment = {{"LD_PRELOAD", FaultsLibrary()},
                               {"MUSTER_FAULT", "first"},
                               {"MUSTER_FAULT_ONCE", Path("once")}}});
  const Outcome outcome = Succeeded(End(job));
  EXPECT_EQ(outcome.hash(), whole.hash());
  EXPECT_EQ(Curve(WithoutEvents(outcome.metrics)), Curve(whole.metrics));
  EXPECT_EQ(outcome.metrics.back()["server_restarts"], 1);
  EXPECT_THAT(Unwrapped(outcome.log),
              HasSubstr("Restarting from the beginning, because there is no checkpoint yet "
                        "(restart 1 of at most 3)"));
  for (const char* const file : {"server.log", "worker-0.log"}) {
    EXPECT_EQ(Starts(file), 2) << file << " should have both attempts";
  }
  ExpectNoFolderButCheckpoints();
}

// Each attempt leaves only a few lines in the logs.
TEST_F(LostServer, OneThatDiesAtEveryStartLeavesLittle) {
  if (!kCanPreload) GTEST_SKIP() << "LD_PRELOAD does not work with a sanitizer's runtime";
  Process job(LaunchWords(Path("tiny.txtpb"), Path("data"), Path("run"), kLong), Path("run.log"),
              {.environment = {{"LD_PRELOAD", FaultsLibrary()}, {"MUSTER_FAULT", "first"}}});
  const Outcome outcome = End(job);
  EXPECT_EQ(outcome.exit_code, 6);
  EXPECT_THAT(Unwrapped(outcome.log), HasSubstr("the last 3 starts did not reach a first"));
  EXPECT_EQ(Starts("server.log"), 4);
  ExpectNoFolderButCheckpoints();
}

TEST_F(LostServer, TheLastOneEndsTheRunAndResumeGoesOn) {
  const Outcome whole = Launch(kLong);
  const auto job = Start("run", With("run.max_restarts=1"));
  const pid_t first = Kill(20, SIGSEGV);
  ASSERT_TRUE(job->Says("Resumed from"));
  Kill(20, SIGKILL, first);
  const Outcome ended = End(*job);
  EXPECT_EQ(ended.exit_code, 6);
  EXPECT_THAT(Unwrapped(ended.log),
              AllOf(HasSubstr("it was not restarted: it has already been restarted 1 time "
                              "(run.max_restarts)"),
                    ContainsRegex("To resume from step [0-9,]+: muster launch --resume ")));
  const Outcome rest = Succeeded(Muster({"launch", "--resume", Path("run")}, "run"));
  EXPECT_EQ(rest.hash(), whole.hash());
  EXPECT_EQ(Curve(WithoutEvents(rest.metrics)), Curve(whole.metrics));
  EXPECT_THAT(Unwrapped(rest.log), HasSubstr("(signal 11) and restarted once, from step"));
}

}  // namespace
}  // namespace muster::testing
