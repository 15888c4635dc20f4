// Real processes are killed, stopped, continued, removed and added by hand during a run. It ends
// with the weights, metrics and evaluations of an undisturbed run.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <string>

#include "common/base/error.h"
#include "tests/cli/text/unwrapped.h"
#include "tests/e2e/hand_job.h"

namespace muster::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<std::string> EventsOf(const std::vector<nlohmann::json>& metrics) {
  std::vector<std::string> events;
  for (const nlohmann::json& line : metrics) {
    if (line.contains("event")) events.push_back(line["event"]);
  }
  return events;
}

// The shared memory that is resident in the process, in KiB.
int64_t SharedKb(pid_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssShmem:")) return std::stoll(line.substr(9));
  }
  return -1;
}

class Lost : public HandJob {
 protected:
  // Settings of a run that is long enough to be disturbed.
  static std::vector<std::string> Settings(std::vector<std::string> more = {}) {
    more.insert(more.end(), {"run.epochs=100", "evaluation.every_epochs=7", "optimizer.type=ADAM",
                             "learning_rate.base=0.001"});
    return more;
  }
  // The metrics of the undisturbed run. Transport and number of workers make no difference.
  std::vector<nlohmann::json> Undisturbed(const std::vector<std::string>& more = {}) {
    const Outcome outcome = Succeeded(Launch(Settings(more)));
    return Curve(WithoutEvents(outcome.metrics));
  }
  // Kills the worker of this rank at a step or soon after.
  void Kill(int rank, int64_t step, int signal = SIGKILL) {
    ASSERT_TRUE(Reaches("run", step));
    const pid_t pid = Find("run", rank);
    ASSERT_GT(pid, 0);
    ASSERT_EQ(::kill(pid, signal), 0);
  }
  // Waits until metrics.jsonl has this many events of this kind.
  bool Happens(const std::string& event, int64_t times = 1) {
    return Eventually(30, [&] {
      const auto events = EventsOf(Metrics("run"));
      return std::ranges::count(events, event) >= times;
    });
  }
};

TEST_F(Lost, AKilledWorkerIsReplaced) {
  const auto expected = Undisturbed();
  for (const char* transport : {"LOCAL", "TCP"}) {
    const auto job = Start("run", Settings({std::string("cluster.transport=") + transport}));
    Kill(1, 20);
    EXPECT_EQ(job->Wait(60), 0) << job->Log();
    EXPECT_EQ(Curve(WithoutEvents(Metrics("run"))), expected) << transport;
    EXPECT_THAT(Unwrapped(job->Log()), AllOf(HasSubstr("Lost rank 1"), HasSubstr("1 worker lost"),
                                             HasSubstr(": killed by SIGKILL")))
        << transport;
    EXPECT_TRUE(NothingLeft(5));
    std::filesystem::remove_all(Path("run"));
  }
}

// The run is long enough for the new worker to take part.
TEST_F(Lost, ItsReplacementTakesPart) {
  const auto job =
      Start("run", {"run.epochs=100000", "evaluation.every_epochs=0", "run.log_every_steps=5"});
  Kill(0, 20);
  EXPECT_TRUE(Happens("worker_joined")) << job->Log();
  const int64_t step = Metrics("run").back()["step"];
  EXPECT_TRUE(Reaches("run", step + 50));
  Kill(1, step + 50);
  // The launcher is notified as well.
  EXPECT_TRUE(job->Says("Joined: rank 1"));
  EXPECT_TRUE(Happens("worker_joined", 2)) << job->Log();
  EXPECT_EQ(job->EndBy(SIGINT, 15), Code(ExitCode::kInterrupted)) << job->Log();
  EXPECT_THAT(Unwrapped(job->Log()),
              AllOf(HasSubstr("Joined: rank 0"), HasSubstr("Joined: rank 1"),
                    HasSubstr("2 workers lost and replaced (rank 0, step ")));
  EXPECT_TRUE(NothingLeft(5));
}

// The step in which it was lost needs extra gradient buffers. Later steps must not keep them.
TEST_F(Lost, WhoTookItsWorkHasAsMuchMemoryAsBeforeSoonAfter) {
  constexpr int64_t kBufferKb = 4'700;  // 1.2 million parameters
  WriteConfigWith("tiny.txtpb", "units: 16", "units: 4096");
  const auto job = Start(
      "run", {"cluster.on_lost_worker=CONTINUE", "run.epochs=100000", "evaluation.every_epochs=0"});
  ASSERT_TRUE(Reaches("run", 12));
  const pid_t other = Find("run", 0);
  const int64_t before = SharedKb(other);
  EXPECT_GT(before, kBufferKb);
  Kill(1, 12);
  ASSERT_TRUE(Happens("worker_lost")) << job->Log();
  ASSERT_TRUE(Reaches("run", Metrics("run").back()["step"].get<int64_t>() + 12));
  EXPECT_LT(SharedKb(other), before + kBufferKb / 2);
  EXPECT_EQ(job->EndBy(SIGINT, 15), Code(ExitCode::kInterrupted)) << job->Log();
}

TEST_F(Lost, TooManyEndTheRun) {
  const auto job = Start("run", {"run.epochs=100000", "evaluation.every_epochs=0",
                                 "run.log_every_steps=5", "cluster.max_restarts=1"});
  Kill(0, 10);
  EXPECT_TRUE(Happens("worker_joined")) << job->Log();
  Kill(1, 20);
  EXPECT_EQ(job->Wait(30), Code(ExitCode::kProcessDied)) << job->Log();
  EXPECT_THAT(Unwrapped(job->Log()),
              AllOf(HasSubstr("rank 1"), HasSubstr("lost more than 1 worker"),
                    HasSubstr("cluster.max_restarts"), HasSubstr("To resume from step")));
  EXPECT_TRUE(NothingLeft(5));
  EXPECT_EQ(Metrics("run").back()["reason"], "failed") << "the end was not requested";
}

// It is stopped for longer than its work is waited for. Others do the work, and it rejoins.
TEST_F(Lost, AStoppedWorkerIsResetAndComesBack) {
  const auto job = Start("run", {"run.epochs=100000", "evaluation.every_epochs=0",
                                 "run.log_every_steps=5", "cluster.transport=TCP"});
  Kill(1, 20, SIGSTOP);
  EXPECT_TRUE(Happens("worker_fenced")) << job->Log();
  for (const nlohmann::json& line : Metrics("run")) {
    if (line.value("event", "") == "worker_fenced") {
      EXPECT_EQ(line["workers"], 1) << "the reset worker must not take part";
    }
  }
  const int64_t step = Metrics("run").back()["step"];
  EXPECT_TRUE(Reaches("run", step + 20)) << "the other worker continues alone";
  Kill(1, step, SIGCONT);
  EXPECT_TRUE(Happens("worker_joined")) << job->Log();
  EXPECT_EQ(job->EndBy(SIGINT, 15), Code(ExitCode::kInterrupted)) << job->Log();
  EXPECT_TRUE(NothingLeft(5));
}

// A worker that is silent for longer than silence_s is replaced.
TEST_F(Lost, ASilentWorkerIsReplaced) {
  const auto job = Start("run", {"run.epochs=100000", "evaluation.every_epochs=0",
                                 "run.log_every_steps=5", "deadlines.silence_s=3"});
  Kill(1, 20, SIGSTOP);
  EXPECT_TRUE(Happens("worker_lost")) << job->Log();
  EXPECT_TRUE(Happens("worker_joined")) << job->Log();
  EXPECT_EQ(job->EndBy(SIGINT, 15), Code(ExitCode::kInterrupted)) << job->Log();
  EXPECT_THAT(Unwrapped(job->Log()), HasSubstr("silent for 3 s"));
  EXPECT_TRUE(NothingLeft(5));
}

// Workers started by hand: one leaves, two join, one of them is killed.
TEST_F(Lost, ByHandSomeComeAndGo) {
  const auto server =
      Server({"--token-file", TokenFile(), "--epochs", "100000", "--set", "cluster.transport=TCP"});
  const std::string endpoint = Endpoint(*server);
  const auto first = Worker(0, endpoint), second = Worker(1, endpoint);
  ASSERT_TRUE(Reaches("run", 10)) << server->Log();
  EXPECT_EQ(second->EndBy(SIGTERM, 20), 0) << second->Log();
  EXPECT_THAT(second->Log(), HasSubstr("this worker will leave"));
  EXPECT_TRUE(Happens("worker_left")) << server->Log();
  const Words join{"muster",     "worker", Path("config.txtpb"), "--join",
                   "--endpoint", endpoint, "--token-file",       TokenFile()};
  const auto third = PlainWorker(join), fourth = PlainWorker(join);
  EXPECT_TRUE(Eventually(30, [&] {
    const auto events = EventsOf(Metrics("run"));
    return std::ranges::count(events, "worker_joined") == 2;
  })) << server->Log();
  third->Signal(SIGKILL);
  EXPECT_TRUE(Happens("worker_lost")) << server->Log();
  const int64_t step = Metrics("run").back()["step"];
  EXPECT_TRUE(Reaches("run", step + 20)) << server->Log();
  EXPECT_EQ(server->EndBy(SIGINT, 15), Code(ExitCode::kInterrupted)) << server->Log();
  EXPECT_THAT(Unwrapped(server->Log()),
              AllOf(HasSubstr("Left: rank 1"), HasSubstr("1 left (rank 1")));
}

}  // namespace
}  // namespace muster::testing
