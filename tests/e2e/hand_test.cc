// Server and workers started by hand on one host.
#include <fmt/core.h>
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <sstream>
#include <thread>

#include "common/base/error.h"
#include "tests/e2e/hand_job.h"

namespace muster::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr const char* kSharedMemory = "over shared memory";

class ByHand : public HandJob {
 protected:
  // The command that the server prints for starting rank 0, as words.
  static Words Invitation(const std::string& log) {
    const size_t at = log.find("muster worker ");
    if (at == std::string::npos) return {};
    std::istringstream line(log.substr(at, log.find('\n', at) - at));
    return {std::istream_iterator<std::string>(line), {}};
  }

  struct Running {
    std::unique_ptr<Process> server, first, second;
  };
  // Starts a long job and waits for its first steps.
  Running RunsLong(const Words& settings = {}) {
    Words words{"--token-file", TokenFile(), "--epochs",
                "100000",       "--set",     "evaluation.every_epochs=0"};
    words.insert(words.end(), settings.begin(), settings.end());
    Running job;
    job.server = Server(words);
    const std::string endpoint = Endpoint(*job.server);
    job.first = Worker(0, endpoint);
    job.second = Worker(1, endpoint);
    EXPECT_TRUE(Reaches("run", 3)) << job.server->Log();
    return job;
  }
};

// The printed commands work unchanged, without addresses or tokens.
TEST_F(ByHand, TheServerSaysHowToStartTheWorkers) {
  const auto server = Server({});
  const std::string endpoint = Endpoint(*server);
  EXPECT_THAT(endpoint, HasSubstr("tcp://127.0.0.1:"));
  ASSERT_TRUE(Eventually(5, [&] { return Invitation(server->Log()).size() == 9; }))
      << server->Log();
  Words words = Invitation(server->Log());
  EXPECT_EQ(std::filesystem::status(Path("run/token")).permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  const auto first = PlainWorker(words);
  words[4] = "1";  // --rank
  const auto second = PlainWorker(words);
  ExpectSuccess(first, second, server);
  // Both discovered the server's shared memory.
  EXPECT_THAT(first->Log(), HasSubstr(kSharedMemory));
  EXPECT_THAT(second->Log(), HasSubstr(kSharedMemory));
  EXPECT_THAT(server->Log(), AllOf(HasSubstr("rank 0"), HasSubstr("rank 1"), HasSubstr("joined"),
                                   HasSubstr("Completed")));
  EXPECT_TRUE(std::filesystem::exists(Path("run/server.log")));
  for (const char* rank : {"0", "1"}) {
    const auto log = Path(fmt::format("run/worker-{}.log", rank));
    EXPECT_THAT(Slurp(log), HasSubstr(fmt::format("joined as rank {}", rank)));
    EXPECT_THAT((rank[0] == '0' ? first : second)->Log(), HasSubstr(log.string()));
  }
  EXPECT_FALSE(std::filesystem::exists(Path("run/token")));  // the server had created it
  EXPECT_EQ(Metrics("run").back()["weights_hash"], LaunchedHash());
}

// Without an endpoint the server chooses a name on this host, as in a launch.
TEST_F(ByHand, LocalNeedsNoEndpoint) {
  const auto server = Server({"--set", "cluster.transport=LOCAL"});
  const std::string endpoint = Endpoint(*server);
  EXPECT_THAT(endpoint, StartsWith("local://@muster-"));
  ASSERT_TRUE(Eventually(5, [&] { return Invitation(server->Log()).size() == 9; }))
      << server->Log();
  EXPECT_THAT(server->Log(), Not(HasSubstr("On another host")));
  Words words = Invitation(server->Log());
  const auto first = PlainWorker(words);
  words[2] = Path("config.txtpb");  // its transport is AUTO
  words[4] = "1";                   // --rank
  const auto second = PlainWorker(words);
  ExpectSuccess(first, second, server);
  EXPECT_THAT(first->Log(), HasSubstr(kSharedMemory));
  EXPECT_THAT(second->Log(), HasSubstr(kSharedMemory));
  EXPECT_EQ(Metrics("run").back()["weights_hash"], LaunchedHash());
}

// A requested address must not be replaced silently.
TEST_F(ByHand, LocalAtAnAddressIsRefused) {
  for (const char* option : {"--endpoint", "--bind"}) {
    const auto server = Server({"--set", "cluster.transport=LOCAL", option, "tcp://127.0.0.1:*"});
    EXPECT_EQ(server->Wait(10), Code(ExitCode::kUsage)) << server->Log();
    EXPECT_THAT(server->Log(), AllOf(HasSubstr("expected an endpoint local://@NAME"),
                                     HasSubstr("without --endpoint")));
  }
}

TEST_F(ByHand, WorkersMayStartFirst) {
  const std::string endpoint = "tcp://127.0.0.1:" + std::to_string(FreePort());
  const auto second = Worker(1, endpoint);
  const auto first = Worker(0, endpoint, {"--set", "cluster.transport=TCP"});
  std::this_thread::sleep_for(std::chrono::milliseconds(700));
  const auto server = Server({"--endpoint", endpoint, "--token-file", TokenFile()});
  ExpectSuccess(first, second, server);
  EXPECT_THAT(second->Log(), HasSubstr(kSharedMemory));
  EXPECT_THAT(first->Log(), HasSubstr("over ZeroMQ"));
  EXPECT_EQ(Metrics("run").back()["weights_hash"], LaunchedHash());
}

// Including workers that are not needed to start the job.
TEST_F(ByHand, WorkersBeyondThoseThatTheJobStartsWithMayStartFirst) {
  const auto server = Server({"--token-file", TokenFile(), "--set", "cluster.max_workers=4"});
  const std::string endpoint = Endpoint(*server);
  const auto third = Worker(3, endpoint);
  EXPECT_TRUE(server->Says("rank 3 ("));
  const auto first = Worker(0, endpoint), second = Worker(1, endpoint);
  ExpectSuccess(third, first, second, server);
  EXPECT_THAT(third->Log(), HasSubstr("joined as rank 3"));
  EXPECT_EQ(Metrics("run").back()["weights_hash"], LaunchedHash());
}

TEST_F(ByHand, TheTokenMayComeFromTheEnvironment) {
  const ProcessOptions with_token{.environment = {{"MUSTER_TOKEN", token()}}};
  const auto server = Server({}, with_token);
  const std::string endpoint = Endpoint(*server);
  const auto worker = [&](const std::string& rank) {
    return PlainWorker(
        {"muster", "worker", Path("config.txtpb"), "--rank", rank, "--endpoint", endpoint},
        with_token);
  };
  const auto first = worker("0"), second = worker("1");
  ExpectSuccess(first, second, server);
  EXPECT_THAT(server->Log(), AllOf(HasSubstr("MUSTER_TOKEN"), Not(HasSubstr(token()))));
  EXPECT_FALSE(std::filesystem::exists(Path("run/token")));
}

// The host restarts faster than the server notices the loss.
TEST_F(ByHand, AWorkerWaitsForItsRankWhileTheServerBelievesInTheOneBefore) {
  const auto server = Server({"--token-file", TokenFile(), "--set", "deadlines.silence_s=3",
                              "--set", "cluster.on_lost_worker=REPLACE"});
  const std::string endpoint = Endpoint(*server);
  const auto gone = Worker(0, endpoint);
  const auto has_joined = [&](const std::unique_ptr<Process>& worker) {
    const std::string name = fmt::format("pid {}) joined", worker->pid());
    return Eventually(20, [&] { return server->Log().find(name) != std::string::npos; });
  };
  ASSERT_TRUE(has_joined(gone)) << server->Log();
  gone->Signal(SIGSTOP);
  const auto first = Worker(0, endpoint);
  ASSERT_TRUE(has_joined(first)) << server->Log() << first->Log();
  const auto second = Worker(1, endpoint);
  ExpectSuccess(first, second, server);
  EXPECT_THAT(first->Log(), HasSubstr("rank 0 is taken by")) << server->Log();
  EXPECT_EQ(Metrics("run").back()["weights_hash"], LaunchedHash());
}

// A surplus worker never gets the rank, and learns of the end like the others.
TEST_F(ByHand, AWorkerThatWaitsForItsRankIsToldOfTheEnd) {
  const auto server = Server({"--token-file", TokenFile()});
  const std::string endpoint = Endpoint(*server);
  const auto first = Worker(0, endpoint);
  ASSERT_TRUE(server->Says("joined")) << server->Log();
  const auto one_too_many = Worker(0, endpoint);
  ASSERT_TRUE(one_too_many->Says("rank 0 is taken by")) << one_too_many->Log();
  const auto second = Worker(1, endpoint);
  ExpectSuccess(first, second, one_too_many, server);
  EXPECT_THAT(one_too_many->Log(), Not(HasSubstr("joined as rank")));
  EXPECT_EQ(Metrics("run").back()["weights_hash"], LaunchedHash());
}

// Any difference between configs that could change the bits is refused.
TEST_F(ByHand, WhatDoesNotFitIsRefusedByName) {
  const auto server = Server({"--token-file", TokenFile()});
  const std::string endpoint = Endpoint(*server);
  const auto refused = [&](const std::string& says, const Words& more,
                           const std::string& config = "config.txtpb") {
    const auto worker = Worker(0, endpoint, more, {}, config);
    EXPECT_EQ(worker->Wait(30), Code(ExitCode::kRefused)) << worker->Log();
    EXPECT_THAT(worker->Log(), HasSubstr(says));
  };
  WriteConfigWith("graph.txtpb", "units: 16", "units: 17");
  refused("hidden/weights [16,", {}, "graph.txtpb");
  refused("run.seed is 1 on the server and 2 on the worker", {"--seed", "2"});
  refused("data.preprocess.flip is true on the server and at its default on the worker",
          {"--set", "data.preprocess.flip=false"});
  refused("data.preprocess.contrast_max is", {"--set", "data.preprocess.contrast_max=1.7"});
  refused("dropout", {"--set", "model.layer[drop].dropout.rate=0.4"});
  refused("lrn", {"--set", "model.layer[norm].lrn.beta=0.7"});
  WriteToken("other", "00112233445566778899aabbccddeefe");
  const auto stranger = PlainWorker({"muster", "worker", Path("config.txtpb"), "--rank", "0",
                                     "--endpoint", endpoint, "--token-file", Path("other")});
  EXPECT_EQ(stranger->Wait(30), Code(ExitCode::kRefused));
  // The local link's name is derived from the token, so the worker tries ZeroMQ, which fails as
  // well.
  EXPECT_THAT(stranger->Log(), AllOf(HasSubstr("shares no memory"), HasSubstr("its token differs"),
                                     HasSubstr("refused this worker"), HasSubstr("token")));
  EXPECT_THAT(server->Log(), AllOf(HasSubstr("Refused rank 0"), HasSubstr("run.seed")));
  // A worker with the run directory's config writes its log there, even if it is refused.
  refused("run.seed is", {"--seed", "2"}, "run/config.txtpb");
  EXPECT_THAT(Slurp(Path("run/worker-0.log")), HasSubstr("run.seed is"));

  // The job still accepts matching workers. Settings that only affect the server may differ.
  const auto first = Worker(0, endpoint, {"--set", "learning_rate.base=77"});
  const auto second = Worker(1, endpoint, {"--set", "cluster.chunk_bytes=2048"});
  ExpectSuccess(first, second, server);
  EXPECT_EQ(Metrics("run").back()["weights_hash"], LaunchedHash());
}

TEST_F(ByHand, AnAddressThatCannotBeIsSaidAtOnce) {
  const auto unbound = Server({"--endpoint", "tcp://192.0.2.1:7700"});
  EXPECT_EQ(unbound->Wait(10), Code(ExitCode::kFailure));
  EXPECT_THAT(unbound->Log(), AllOf(HasSubstr("192.0.2.1"), HasSubstr("address of this host")));
  const auto any = Worker(0, "tcp://127.0.0.1:*");
  EXPECT_EQ(any->Wait(10), Code(ExitCode::kUsage)) << any->Log();
  EXPECT_THAT(any->Log(), HasSubstr("address and port"));
  const auto nameless = Worker(0, "tcp://no..such..name:7700");
  EXPECT_EQ(nameless->Wait(10), Code(ExitCode::kUsage)) << nameless->Log();
  EXPECT_THAT(nameless->Log(), HasSubstr("cannot resolve the name"));
}

TEST_F(ByHand, OverIpv6) {
  const auto server = Server({"--endpoint", "tcp://[::1]:*", "--token-file", TokenFile()});
  const auto says = [&](const char* text) { return server->Log().find(text) != std::string::npos; };
  ASSERT_TRUE(Eventually(10, [&] { return says("Listening at") || says("cannot listen"); }));
  if (says("cannot listen")) GTEST_SKIP() << "this host has no IPv6 loopback address";
  const std::string endpoint = Endpoint(*server);
  EXPECT_THAT(endpoint, HasSubstr("tcp://[::1]:"));
  const auto first = Worker(0, endpoint, {"--set", "cluster.transport=TCP"});
  const auto second = Worker(1, endpoint);
  ExpectSuccess(first, second, server);
  EXPECT_THAT(first->Log(), HasSubstr("over ZeroMQ"));
  EXPECT_THAT(second->Log(), HasSubstr(kSharedMemory));
}

// Different thread counts are logged, because they can change the bits.
TEST_F(ByHand, OtherNumbersOfThreadsAreRemarkedOn) {
  const auto server = Server({"--token-file", TokenFile()});
  const std::string endpoint = Endpoint(*server);
  const auto first = Worker(0, endpoint);
  ASSERT_TRUE(server->Says("joined"));
  const auto second = Worker(1, endpoint, {"--set", "worker.threads=2"});
  ExpectSuccess(first, second, server);
  EXPECT_THAT(server->Log(), HasSubstr("uses 2 threads but rank 0 uses 1"));
}

TEST_F(ByHand, APortInUseIsNamed) {
  const auto first = Server({"--token-file", TokenFile()});
  const std::string endpoint = Endpoint(*first);
  const auto second =
      std::make_unique<Process>(Words{"muster", "server", Path("config.txtpb"), "--run-dir",
                                      Path("run2"), "--endpoint", endpoint},
                                Path("server2.log"));
  EXPECT_EQ(second->Wait(10), Code(ExitCode::kFailure));
  EXPECT_THAT(second->Log(), AllOf(HasSubstr(endpoint), HasSubstr("another process")));
}

TEST_F(ByHand, TheTokenOfARunThatNeverBeganIsRemoved) {
  const auto server = Server({"--set", "deadlines.start_s=0.5"});
  EXPECT_EQ(server->Wait(20), Code(ExitCode::kDeadline)) << server->Log();
  EXPECT_TRUE(std::filesystem::exists(Path("run/config.txtpb")));
  EXPECT_FALSE(std::filesystem::exists(Path("run/token")));
}

// Workers that wait for it time out and report it.
TEST_F(ByHand, AStoppedServerIsNamedByAll) {
  const Running job = RunsLong({"--set", "deadlines.silence_s=2"});
  const pid_t server = Find("run", -1);
  ASSERT_GT(server, 0);
  ::kill(server, SIGSTOP);
  EXPECT_EQ(job.server->Wait(30), Code(ExitCode::kDeadline)) << job.server->Log();
  EXPECT_THAT(job.server->Log(), AllOf(HasSubstr("error: server (pid " + std::to_string(server)),
                                       HasSubstr("it is stopped (SIGSTOP?)")));
  // Their deadline is the default of 20 s, so they see the end of the server.
  EXPECT_EQ(job.first->Wait(10), Code(ExitCode::kPeerFailed)) << job.first->Log();
  EXPECT_EQ(job.second->Wait(10), Code(ExitCode::kPeerFailed)) << job.second->Log();
  EXPECT_TRUE(NothingLeft(5));
}

TEST_F(ByHand, AWorkerGivesAStoppedServerUp) {
  Words settings{"--set", "deadlines.silence_s=2"};
  const auto server = Server(
      {"--token-file", TokenFile(), "--epochs", "100000", "--set", "cluster.on_lost_worker=ABORT"});
  const std::string endpoint = Endpoint(*server);
  const auto first = Worker(0, endpoint, settings), second = Worker(1, endpoint);
  ASSERT_TRUE(Reaches("run", 3)) << server->Log();
  const pid_t pid = Find("run", -1);
  ASSERT_GT(pid, 0);
  ::kill(pid, SIGSTOP);
  EXPECT_EQ(first->Wait(20), Code(ExitCode::kDeadline)) << first->Log();
  EXPECT_THAT(first->Log(), HasSubstr("no message from the server for"));
  ::kill(pid, SIGCONT);  // the server then finds that it is gone
  EXPECT_EQ(server->Wait(20), Code(ExitCode::kPeerFailed)) << server->Log();
  EXPECT_THAT(server->Log(), HasSubstr("rank 0"));
}

TEST_F(ByHand, AMissingServerIsNamed) {
  const std::string endpoint = "tcp://127.0.0.1:" + std::to_string(FreePort());
  const auto worker = Worker(0, endpoint, {"--set", "deadlines.start_s=1"});
  EXPECT_EQ(worker->Wait(20), Code(ExitCode::kDeadline)) << worker->Log();
  EXPECT_THAT(worker->Log(), HasSubstr(endpoint));
}

TEST_F(ByHand, CtrlCOfAWorkerIsNoticedByAll) {
  const Running job = RunsLong({"--set", "cluster.on_lost_worker=ABORT"});
  const pid_t pid = job.second->pid();
  job.second->Signal(SIGINT);
  EXPECT_EQ(job.second->Wait(5), 128 + SIGINT);
  EXPECT_THAT(job.second->Log(), HasSubstr("muster: rank 1 was stopped by SIGINT (Ctrl-C)"));
  EXPECT_EQ(job.server->Wait(10), Code(ExitCode::kPeerFailed)) << job.server->Log();
  EXPECT_THAT(job.server->Log(), AllOf(HasSubstr("rank 1"), HasSubstr(std::to_string(pid))));
  EXPECT_EQ(job.first->Wait(10), Code(ExitCode::kPeerFailed)) << job.first->Log();
  EXPECT_THAT(job.first->Log(), HasSubstr("rank 1"));
  EXPECT_TRUE(NothingLeft(5));
}

// The signal does not come from the launcher, so the server reports the signal and its exit code.
TEST_F(ByHand, ASignalToTheServerItself) {
  const Running job = RunsLong();
  const pid_t server = Find("run", -1);
  ASSERT_GT(server, 0);
  ::kill(server, SIGINT);
  EXPECT_EQ(job.server->Wait(10), Code(ExitCode::kProcessDied)) << job.server->Log();
  EXPECT_THAT(job.server->Log(), HasSubstr("exit code 130: stopped by SIGINT at step"));
}

TEST_F(ByHand, CtrlCOfTheServerStopsTheRun) {
  const Running job = RunsLong();
  job.server->Signal(SIGINT);
  EXPECT_EQ(job.server->Wait(10), Code(ExitCode::kInterrupted)) << job.server->Log();
  EXPECT_EQ(job.first->Wait(10), Code(ExitCode::kPeerFailed));
  EXPECT_EQ(job.second->Wait(10), Code(ExitCode::kPeerFailed));
  EXPECT_THAT(job.first->Log(), HasSubstr("stopped"));
  EXPECT_EQ(Metrics("run").back()["reason"], "interrupted");
}

}  // namespace
}  // namespace muster::testing
