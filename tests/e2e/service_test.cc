// Server and workers as a service manager has them: the same command again whenever it has failed.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <fstream>

#include "tests/e2e/hand_job.h"

namespace muster::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class Service : public HandJob {
 protected:
  // As the unit has it.
  std::unique_ptr<Process> Serve(const Words& more = {}, const ProcessOptions& options = {}) {
    Words words{"--token-file", TokenFile(),
                "--endpoint",   endpoint_,
                "--resume",     "auto",
                "--set",        "run.epochs=300",
                "--set",        "checkpoint.every_steps=5",
                "--set",        "evaluation.every_epochs=0"};
    words.insert(words.end(), more.begin(), more.end());
    return Server(words, options);
  }
  void ServeToTheEnd(const std::string& expected_hash) {
    const auto server = Serve();
    const auto first = Worker(0, endpoint_), second = Worker(1, endpoint_);
    EXPECT_EQ(server->Wait(60), 0) << server->Log();
    EXPECT_EQ(first->Wait(10), 0) << first->Log();
    EXPECT_EQ(second->Wait(10), 0) << second->Log();
    EXPECT_EQ(Metrics("run").back()["weights_hash"], expected_hash);
  }
  std::string WholeHash() {
    const Outcome whole = Launch({"run.epochs=300", "evaluation.every_epochs=0"});
    EXPECT_EQ(whole.exit_code, 0) << whole.log;
    return whole.hash();
  }

  const std::string endpoint_ = "tcp://127.0.0.1:" + std::to_string(FreePort());
};

TEST_F(Service, BeginsGoesOnAndIsComplete) {
  const std::string hash = WholeHash();
  {
    const auto server = Serve();
    const auto first = Worker(0, endpoint_), second = Worker(1, endpoint_);
    ASSERT_TRUE(Reaches("run", 20)) << server->Log();
    EXPECT_THAT(server->Log(), Not(HasSubstr("  resumes ")));
    EXPECT_TRUE(Eventually(
        10, [&] { return Slurp(Path("run/status.json")).find("training") != std::string::npos; }));
    server->Signal(SIGKILL);  // nothing of it stays
    EXPECT_EQ(server->Wait(10), 128 + SIGKILL);
    EXPECT_EQ(first->Wait(20), 7) << first->Log();
    EXPECT_EQ(second->Wait(20), 7) << second->Log();
    EXPECT_TRUE(NothingLeft(10));
  }
  ServeToTheEnd(hash);
  // Which the run tells, as of a server that a launcher has lost.
  EXPECT_EQ(Metrics("run").back()["server_restarts"], 1);
  EXPECT_THAT(Muster({"runs", Path("run")}).log, HasSubstr("completed, 1 restart"));
  // After a reboot.
  const auto again = Serve();
  EXPECT_EQ(again->Wait(20), 0) << again->Log();
  EXPECT_THAT(again->Log(), HasSubstr("/run is complete: nothing is left to do"));
  EXPECT_EQ(Metrics("run").back()["weights_hash"], hash);
}

// Lost while it wrote what a complete run leaves: its workers have ended well, and are not started
// again, or only one of them is.
TEST_F(Service, WritesWhatACompleteRunLeavesWithoutItsWorkers) {
  const std::string hash = WholeHash();
  ServeToTheEnd(hash);
  const std::string whole = Slurp(Path("run/metrics.jsonl"));
  // What they are of, the config, says more.
  const auto weights = [this] {
    const std::string file = Slurp(Path("run/model.safetensors"));
    return file.substr(file.size() - std::min<size_t>(file.size(), 16'000));
  };
  const std::string then = weights();
  for (const bool one_worker : {false, true}) {
    const size_t last = whole.find_last_of('\n', whole.size() - 2);
    fs::resize_file(Path("run/metrics.jsonl"), last + 1);
    fs::remove(Path("run/model.safetensors"));
    // The server waits for its workers for 2 s only. A worker needs longer on a busy machine, so it
    // starts first and waits for the server.
    const auto worker = one_worker ? Worker(1, endpoint_) : nullptr;
    if (worker) {
      ASSERT_TRUE(Eventually(30, [&] {
        return worker->Log().find("joining the job at") != std::string::npos;
      })) << worker->Log();
    }
    const auto server = Serve({"--set", "deadlines.start_s=2"});
    EXPECT_EQ(server->Wait(30), 0) << server->Log();
    if (worker) {
      EXPECT_EQ(worker->Wait(10), 0) << worker->Log();
      EXPECT_THAT(worker->Log(), HasSubstr("this worker is not needed: the run is complete"));
    }
    EXPECT_EQ(Metrics("run").back()["weights_hash"], hash);
    EXPECT_EQ(Metrics("run").back()["reason"], "completed");
    EXPECT_TRUE(weights() == then);
  }
}

TEST_F(Service, AWorkerThatComesWhileACompleteRunIsWrittenIsNotNeeded) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's runtime must come first";
#endif
  const auto server = Serve({}, {.environment = {{"LD_PRELOAD", MUSTER_FAULTS},
                                                 {"MUSTER_FAULT", "model"},
                                                 {"MUSTER_FAULT_ONCE", Path("written")}}});
  const auto first = Worker(0, endpoint_), second = Worker(1, endpoint_);
  EXPECT_EQ(first->Wait(60), 0) << first->Log();
  EXPECT_EQ(second->Wait(10), 0) << second->Log();
  const auto third = Worker(1, endpoint_);
  EXPECT_EQ(third->Wait(10), 0) << third->Log();
  EXPECT_THAT(third->Log(), HasSubstr("this worker is not needed: the run is complete"));
  EXPECT_FALSE(fs::exists(Path("run/model.safetensors"))) << "it is still being written";
  std::ofstream(Path("written")).flush();
  EXPECT_EQ(server->Wait(10), 0) << server->Log();
}

// Killed so early that no checkpoint was on the disk.
TEST_F(Service, BeginsAnewWhereThereIsNoCheckpoint) {
  const std::string hash = WholeHash();
  fs::create_directory(Path("run"));
  std::ofstream(Path("run") / "metrics.jsonl") << "{\"step\":1}\n";
  std::ofstream(Path("run") / "server.log") << "what it said\n";
  ServeToTheEnd(hash);
  EXPECT_TRUE(fs::exists(Path("run/attempt-1/metrics.jsonl")));
  EXPECT_TRUE(fs::exists(Path("run/attempt-1/server.log")));
  EXPECT_EQ(Metrics("run").front()["step"], 1);
  EXPECT_EQ(Metrics("run").size(),
            1802u);  // a line a step, the evaluation at the end, the last one
}

TEST_F(Service, NeverBeginsAnewOverDamagedCheckpoints) {
  ASSERT_EQ(Launch({"run.epochs=3"}).exit_code, 0);
  fs::rename(Path("run0"), Path("run"));
  for (const auto& entry : fs::directory_iterator(Path("run/checkpoints"))) {
    if (entry.is_directory()) std::ofstream(entry.path() / "state.pb") << "nonsense";
  }
  const auto server = Serve();
  EXPECT_EQ(server->Wait(20), 3) << server->Log();
  EXPECT_THAT(server->Log(), HasSubstr("no checkpoint that is whole"));
  EXPECT_FALSE(fs::exists(Path("run/attempt-1")));
}

TEST_F(Service, NeedsADirectoryAndCheckpoints) {
  const Outcome nowhere = Muster({"server", Path("config.txtpb"), "--resume", "auto"});
  EXPECT_EQ(nowhere.exit_code, 2);
  EXPECT_THAT(nowhere.log, HasSubstr("--resume auto: expected --run-dir DIR"));
  const auto none = Serve({"--set", "checkpoint.keep_last=0"});
  EXPECT_EQ(none->Wait(20), 2);
  EXPECT_THAT(none->Log(), HasSubstr("checkpoint.keep_last is 0"));
  const Outcome both =
      Muster({"server", Path("config.txtpb"), "--resume", Path("run"), "--run-dir", Path("run")});
  EXPECT_EQ(both.exit_code, 2);
  EXPECT_THAT(both.log, HasSubstr("expected one of --resume, "));
}

TEST_F(Service, LaunchDoesTheSame) {
  const Words words{"launch", Path("config.txtpb"), "--run-dir", Path("run"), "--resume", "auto"};
  const Outcome first = Muster(words, "run");
  ASSERT_EQ(first.exit_code, 0) << first.log;
  fs::remove(Path("run/metrics.jsonl"));  // killed before its last line
  const Outcome second = Muster(words, "run");
  EXPECT_EQ(second.exit_code, 0) << second.log;
  EXPECT_THAT(second.log, ContainsRegex("resumes +12 of 12 steps done"));
  EXPECT_EQ(second.hash(), first.hash());
  EXPECT_THAT(Muster(words, "run").log, HasSubstr("is complete"));
}

// What is secret is in no command line, no environment, no log, and in no file that others read.
TEST_F(Service, TheTokenIsNowhereToBeSeen) {
  const auto server = Serve();
  const auto first = Worker(0, endpoint_);
  const auto second = PlainWorker(
      {"muster", "worker", Path("config.txtpb"), "--rank", "1", "--endpoint", endpoint_},
      {.environment = {{"MUSTER_TOKEN", token()}}});
  ASSERT_TRUE(Reaches("run", 5)) << server->Log();
  std::vector<pid_t> pids{server->pid(), Find("run", -1), first->pid(), second->pid()};
  for (const pid_t pid : pids) {
    ASSERT_GT(pid, 0);
    const fs::path proc = fs::path("/proc") / std::to_string(pid);
    for (const char* file : {"cmdline", "environ"}) {
      std::ifstream in(proc / file, std::ios::binary);
      const std::string text{std::istreambuf_iterator<char>(in), {}};
      EXPECT_EQ(text.find(token()), std::string::npos) << file << " of " << pid;
    }
  }
  server->Signal(SIGTERM);
  EXPECT_EQ(server->Wait(20), 143);
  for (const auto& entry : fs::recursive_directory_iterator(Path("run"))) {
    if (!entry.is_regular_file()) continue;
    std::ifstream in(entry.path(), std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    EXPECT_EQ(text.find(token()), std::string::npos) << entry.path();
  }
  for (const Process* process : {server.get(), first.get(), second.get()}) {
    EXPECT_THAT(process->Log(), Not(HasSubstr(token())));
  }
}

}  // namespace
}  // namespace muster::testing
