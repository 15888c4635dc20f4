// What somebody without the job's token can do to a server (stranger.cc): nothing but keep it busy.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "common/base/error.h"
#include "tests/e2e/hand_job.h"

namespace muster::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Strangers : public HandJob, public ::testing::WithParamInterface<const char*> {
 protected:
  std::unique_ptr<Process> Stranger(const std::string& endpoint, const std::string& mode,
                                    const std::string& seconds) {
    return std::make_unique<Process>(Words{"stranger", endpoint, mode, seconds},
                                     Path("stranger-" + mode + ".log"));
  }
};

// While the server waits for its workers, and while it trains. Short deadlines: what goes wrong by
// a timer goes wrong soon.
TEST_P(Strangers, DoNotDisturbAJob) {
  const auto server = Server({"--token-file", TokenFile(), "--set", "deadlines.silence_s=2",
                              "--set", "deadlines.start_s=60"});
  const std::string endpoint = Endpoint(*server);
  const std::string mode = GetParam();
  const auto with_null = Stranger(endpoint, mode, "2");
  const auto with_plain = Stranger(endpoint, "plain-" + mode, "2");
  EXPECT_EQ(with_null->Wait(30), 0) << with_null->Log();
  EXPECT_EQ(with_plain->Wait(30), 0) << with_plain->Log();
  const auto another = Stranger(endpoint, "plain-" + mode, "2");
  const auto first = Worker(0, endpoint, {"--set", "deadlines.silence_s=20"});
  const auto second = Worker(1, endpoint, {"--set", "deadlines.silence_s=20"});
  EXPECT_EQ(first->Wait(40), 0) << first->Log();
  EXPECT_EQ(second->Wait(40), 0) << second->Log();
  EXPECT_EQ(server->Wait(40), 0) << server->Log();
  EXPECT_EQ(another->Wait(30), 0) << another->Log();
  ASSERT_FALSE(Metrics("run").empty());
  EXPECT_EQ(Metrics("run").back()["weights_hash"], LaunchedHash());
  EXPECT_LT(std::filesystem::file_size(Path("run/server.log")), 64u << 10);
  EXPECT_LT(std::filesystem::file_size(Path("server.log")), 64u << 10);
}

INSTANTIATE_TEST_SUITE_P(Modes, Strangers, ::testing::Values("flood", "more", "text"),
                         [](const auto& info) { return std::string(info.param); });

using Token = HandJob;

// Over ZeroMQ the handshake refuses it; both sides say so.
TEST_F(Token, AWrongOneIsRefusedAndSaid) {
  const auto server = Server({"--token-file", TokenFile(), "--set", "cluster.transport=TCP"});
  const std::string endpoint = Endpoint(*server);
  WriteToken("other", "00112233445566778899aabbccddeefe");
  const auto wrong =
      PlainWorker({"muster", "worker", Path("config.txtpb"), "--rank", "0", "--endpoint", endpoint,
                   "--token-file", Path("other"), "--set", "cluster.transport=TCP"});
  EXPECT_EQ(wrong->Wait(20), static_cast<int>(ExitCode::kRefused)) << wrong->Log();
  EXPECT_THAT(wrong->Log(), AllOf(HasSubstr("refused this worker"), HasSubstr("token is wrong")));
  EXPECT_TRUE(Eventually(5, [&] {
    return server->Log().find("Refused a connection from 127.0.0.1") != std::string::npos;
  })) << server->Log();
  const auto first = Worker(0, endpoint, {"--set", "cluster.transport=TCP"});
  const auto second = Worker(1, endpoint, {"--set", "cluster.transport=TCP"});
  EXPECT_EQ(first->Wait(40), 0) << first->Log();
  EXPECT_EQ(second->Wait(40), 0) << second->Log();
  EXPECT_EQ(server->Wait(40), 0) << server->Log();
}

}  // namespace
}  // namespace muster::testing
