// Server and workers under a service manager, which repeats the same command after each failure.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <fstream>

#include "tests/base/paths.h"
#include "tests/e2e/hand_job.h"

namespace muster::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class Service : public HandJob {
 protected:
  // Starts the server with the command of the unit.
  std::unique_ptr<Process> Serve(const Words& more = {}, const ProcessOptions& options = {}) {
    Words words{"--token-file", TokenFile(),
                "--endpoint",   endpoint_,
                "--resume",     "auto",
                "--set",        length_,
                "--set",        "checkpoint.every_steps=5",
                "--set",        "evaluation.every_epochs=0"};
    words.insert(words.end(), more.begin(), more.end());
    return Server(words, options);
  }
  void ServeToTheEnd(const std::string& expected_hash) {
    const auto server = Serve();
    const auto first = Worker(0, endpoint_), second = Worker(1, endpoint_);
    ExpectSuccess(server, first, second);
    EXPECT_EQ(Metrics("run").back()["weights_hash"], expected_hash);
  }
  std::string WholeHash() {
    const Outcome whole = Succeeded(Launch({length_, "evaluation.every_epochs=0"}));
    return whole.hash();
  }

  const std::string endpoint_ = "tcp://127.0.0.1:" + std::to_string(FreePort());
  std::string length_ = "run.epochs=20";
};

TEST_F(Service, BeginsGoesOnAndIsComplete) {
  length_ = "run.epochs=300";
  const std::string hash = WholeHash();
  {
    const auto server = Serve();
    const auto first = Worker(0, endpoint_), second = Worker(1, endpoint_);
    ASSERT_TRUE(Reaches("run", 20)) << server->Log();
    EXPECT_THAT(server->Log(), Not(HasSubstr("  resumes ")));
    EXPECT_TRUE(Eventually(10, [&] {
      return Muster({"top", "--json", Path("run")}).log.find("training") != std::string::npos;
    }));
    server->Signal(SIGKILL);  // it cannot clean up
    EXPECT_EQ(server->Wait(10), 128 + SIGKILL);
    EXPECT_EQ(first->Wait(20), 7) << first->Log();
    EXPECT_EQ(second->Wait(20), 7) << second->Log();
    EXPECT_TRUE(NothingLeft(10));
    EXPECT_THAT(Muster({"runs", Path("run")}).log, HasSubstr("killed"));
  }
  ServeToTheEnd(hash);
  // The run records it like a server lost by a launcher.
  EXPECT_EQ(Metrics("run").back()["server_restarts"], 1);
  EXPECT_THAT(Muster({"runs", Path("run")}).log, HasSubstr("completed, 1 restart"));
  // The services start again after a reboot.
  const auto again = Serve();
  EXPECT_EQ(again->Wait(20), 0) << again->Log();
  EXPECT_THAT(again->Log(), HasSubstr("/run is complete: nothing is left to do"));
  EXPECT_EQ(Metrics("run").back()["weights_hash"], hash);
}

// The server was lost while it wrote the results of a complete run. Its workers have ended
// successfully, so none or only one of them is restarted.
TEST_F(Service, WritesWhatACompleteRunLeavesWithoutItsWorkers) {
  const std::string hash = WholeHash();
  ServeToTheEnd(hash);
  const std::string whole = Slurp(Path("run/metrics.jsonl"));
  // Only the weights: the config in the metadata differs.
  const auto weights = [this] {
    const std::string file = Slurp(Path("run/model.safetensors"));
    return file.substr(file.size() - std::min<size_t>(file.size(), 16'000));
  };
  const std::string then = weights();
  for (const bool one_worker : {false, true}) {
    const size_t last = whole.find_last_of('\n', whole.size() - 2);
    fs::resize_file(Path("run/metrics.jsonl"), last + 1);
    fs::remove(Path("run/model.safetensors"));
    // The server waits only 2 s for its workers. A worker needs longer on a busy machine, so it
    // starts first and waits for the server.
    const auto worker = one_worker ? Worker(1, endpoint_) : nullptr;
    if (worker) {
      ASSERT_TRUE(worker->Says("joining the job at"));
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
  if (!kCanPreload) GTEST_SKIP() << "LD_PRELOAD does not work with a sanitizer's runtime";
  const auto server = Serve({}, {.environment = {{"LD_PRELOAD", FaultsLibrary()},
                                                 {"MUSTER_FAULT", "model"},
                                                 {"MUSTER_FAULT_ONCE", Path("written")}}});
  const auto first = Worker(0, endpoint_), second = Worker(1, endpoint_);
  ExpectSuccess(first, second);
  const auto third = Worker(1, endpoint_);
  EXPECT_EQ(third->Wait(10), 0) << third->Log();
  EXPECT_THAT(third->Log(), HasSubstr("this worker is not needed: the run is complete"));
  EXPECT_FALSE(fs::exists(Path("run/model.safetensors"))) << "the server is still writing it";
  std::ofstream(Path("written")).flush();
  EXPECT_EQ(server->Wait(10), 0) << server->Log();
}

// The server was killed before its first checkpoint.
TEST_F(Service, BeginsAnewWhereThereIsNoCheckpoint) {
  const std::string hash = WholeHash();
  fs::create_directory(Path("run"));
  std::ofstream(Path("run") / "metrics.jsonl") << "{\"step\":1}\n";
  std::ofstream(Path("run") / "server.log") << "what it said\n";
  ServeToTheEnd(hash);
  EXPECT_TRUE(fs::exists(Path("run/attempt-1/metrics.jsonl")));
  EXPECT_TRUE(fs::exists(Path("run/attempt-1/server.log")));
  EXPECT_EQ(Metrics("run").front()["step"], 1);
  // A line for each step, for the final evaluation, and for the end.
  EXPECT_EQ(Metrics("run").size(), 122u);
}

TEST_F(Service, NeverBeginsAnewOverDamagedCheckpoints) {
  ASSERT_EQ(Launch({"run.epochs=3"}).exit_code, 0);
  fs::rename(Path("run0"), Path("run"));
  for (const fs::path& checkpoint : Checkpoints("run")) {
    std::ofstream(checkpoint / "state.pb") << "nonsense";
  }
  const auto server = Serve();
  EXPECT_EQ(server->Wait(20), 3) << server->Log();
  EXPECT_THAT(server->Log(), HasSubstr("no intact checkpoint"));
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
  const Outcome first = Succeeded(Muster(words, "run"));
  fs::remove(Path("run/metrics.jsonl"));  // killed before its last line
  const Outcome second = Succeeded(Muster(words, "run"));
  EXPECT_THAT(second.log, ContainsRegex("resumes +12 of 12 steps done"));
  EXPECT_EQ(second.hash(), first.hash());
  EXPECT_THAT(Muster(words, "run").log, HasSubstr("is complete"));
}

}  // namespace
}  // namespace muster::testing
