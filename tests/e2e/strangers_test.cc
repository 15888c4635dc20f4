// A stranger without the job's token (stranger.cc) can do no more than keep a server busy.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <tuple>

#include "common/base/error.h"
#include "tests/e2e/hand_job.h"

namespace muster::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Sanitizers delay freeing memory to detect later uses, which makes resident memory meaningless.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kResidentIsHeld = false;
#else
constexpr bool kResidentIsHeld = true;
#endif

// The peak memory of this process, or 0 if it does not exist.
size_t PeakBytes(pid_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::stoul(line.substr(6)) << 10;
  }
  return 0;
}

class Strangers : public HandJob,
                  public ::testing::WithParamInterface<std::tuple<std::string, std::string>> {
 protected:
  std::unique_ptr<Process> Stranger(const std::string& endpoint, const std::string& mode,
                                    const std::string& seconds) {
    return std::make_unique<Process>(Words{"stranger", endpoint, mode, seconds},
                                     Path("stranger-" + mode + ".log"));
  }
};

// Attacks while the server waits for its workers and while it trains. Short deadlines reveal timer
// problems soon.
TEST_P(Strangers, DoNotDisturbAJob) {
  const auto& [mode, encryption] = GetParam();
  const Words set{"--set", "cluster.encryption=" + encryption, "--set", "cluster.transport=TCP"};
  Words server_words{"--token-file",          TokenFile(), "--set",
                     "deadlines.silence_s=2", "--set",     "deadlines.start_s=60"};
  server_words.insert(server_words.end(), set.begin(), set.end());
  const auto server = Server(server_words);
  const std::string endpoint = Endpoint(*server);
  const auto with_null = Stranger(endpoint, mode, "2");
  // The server's own mechanism, without a token.
  const std::string known = (encryption == "CURVE" ? "curve-" : "plain-") + mode;
  const auto with_known = Stranger(endpoint, known, "2");
  ExpectSuccess(with_null, with_known);
  const auto another = Stranger(endpoint, known, "2");
  Words worker_words{"--set", "deadlines.silence_s=20"};
  worker_words.insert(worker_words.end(), set.begin(), set.end());
  const auto first = Worker(0, endpoint, worker_words);
  const auto second = Worker(1, endpoint, worker_words);
  ExpectSuccess(first, second, server, another);
  ASSERT_FALSE(Metrics("run").empty());
  EXPECT_EQ(Metrics("run").back()["weights_hash"], LaunchedHash());
  EXPECT_LT(std::filesystem::file_size(Path("run/server.log")), 64u << 10);
  EXPECT_LT(std::filesystem::file_size(Path("server.log")), 64u << 10);
}

INSTANTIATE_TEST_SUITE_P(Modes, Strangers,
                         ::testing::Combine(::testing::Values("flood", "more", "text"),
                                            ::testing::Values("NONE", "CURVE")),
                         [](const auto& info) {
                           return std::get<0>(info.param) + "_" + std::get<1>(info.param);
                         });

class Hoarders : public Strangers {};

// 400 connections that send an almost complete message, a too large one, or nothing, and 400 with
// another mechanism. The server buffers at most one piece for each of the first.
TEST_P(Hoarders, HoldAPieceEach) {
  if (!kResidentIsHeld) GTEST_SKIP() << "a sanitizer delays freeing memory";
  const auto& [mode, encryption] = GetParam();
  const auto server =
      Server({"--token-file", TokenFile(), "--set", "deadlines.start_s=60", "--set",
              "cluster.encryption=" + encryption, "--set", "cluster.transport=TCP"});
  const std::string endpoint = Endpoint(*server);
  const pid_t pid = Find("run", -1);
  ASSERT_GT(pid, 0);
  const size_t before = PeakBytes(pid);
  ASSERT_GT(before, 0u);
  const std::string known = (encryption == "CURVE" ? "curve-" : "plain-") + mode;
  const auto one = Stranger(endpoint, known, "60");
  const auto two = Stranger(endpoint, mode, "60");
  constexpr size_t kConnections = 400, kEach = (256 + 64) << 10, kPrograms = 32 << 20;
  if (mode == "unfinished") {
    // The server reads slowly on a busy machine, so wait until the attack has arrived.
    for (int tries = 0; tries < 400 && PeakBytes(pid) - before <= 100 * kEach; ++tries) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    EXPECT_GT(PeakBytes(pid) - before, 100 * kEach) << "the attack has not arrived";
  }
  std::this_thread::sleep_for(std::chrono::seconds(2));
  EXPECT_EQ(one->EndBy(SIGTERM, 20), 0) << one->Log();
  EXPECT_EQ(two->EndBy(SIGTERM, 20), 0) << two->Log();
  const size_t held = PeakBytes(pid) - before;
  RecordProperty("held_mb", static_cast<int>(held >> 20));
  EXPECT_LT(held, kConnections * kEach + kPrograms) << server->Log();
  server->Signal(SIGTERM);
  (void)server->Wait(20);
}

INSTANTIATE_TEST_SUITE_P(Modes, Hoarders,
                         ::testing::Combine(::testing::Values("unfinished", "giant", "idle"),
                                            ::testing::Values("NONE", "CURVE")),
                         [](const auto& info) {
                           return std::get<0>(info.param) + "_" + std::get<1>(info.param);
                         });

using Token = HandJob;

// Over ZeroMQ the handshake rejects it, and both sides report it.
TEST_F(Token, AWrongOneIsRefusedAndSaid) {
  const auto server = Server({"--token-file", TokenFile(), "--set", "cluster.transport=TCP"});
  const std::string endpoint = Endpoint(*server);
  WriteToken("other", "00112233445566778899aabbccddeefe");
  const auto wrong =
      PlainWorker({"muster", "worker", Path("config.txtpb"), "--rank", "0", "--endpoint", endpoint,
                   "--token-file", Path("other"), "--set", "cluster.transport=TCP"});
  EXPECT_EQ(wrong->Wait(20), Code(ExitCode::kRefused)) << wrong->Log();
  EXPECT_THAT(wrong->Log(), AllOf(HasSubstr("refused this worker"), HasSubstr("token is wrong")));
  EXPECT_TRUE(server->Says("Refused a connection from 127.0.0.1", 5));
  const auto first = Worker(0, endpoint, {"--set", "cluster.transport=TCP"});
  const auto second = Worker(1, endpoint, {"--set", "cluster.transport=TCP"});
  ExpectSuccess(first, second, server);
}

}  // namespace
}  // namespace muster::testing
