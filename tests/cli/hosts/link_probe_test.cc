#include "cli/hosts/link_probe.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "cli/hosts/host_check.h"
#include "common/base/error.h"
#include "common/link/tcp_address.h"

namespace muster {
namespace {

using ::testing::HasSubstr;
using ::testing::IsSupersetOf;

constexpr const char* kSecret = "0123456789abcdef0123456789abcdef";

TEST(LinkProbeTest, MeasuresLatencyClockAndBandwidth) {
  const ProbeListener listener("127.0.0.1");
  std::string address;
  std::jthread other([&] { address = ServeProbe(listener.endpoint(), kSecret); });
  LinkFacts facts;
  {
    const ProbeListener::Peer peer = listener.Accept();
    EXPECT_EQ(peer.secret, kSecret);
    facts = MeasureLink(peer.fd, /*bandwidth=*/true);
  }
  other.join();
  EXPECT_EQ(address, "127.0.0.1");
  EXPECT_GT(facts.latency_s, 0);
  EXPECT_LT(std::abs(facts.clock_offset_s), 1) << "both read the same clock";
  EXPECT_GT(facts.to_peer, 0);
  EXPECT_GT(facts.from_peer, 0);
}

TEST(LinkProbeTest, NobodyListens) {
  std::string endpoint;
  { endpoint = ProbeListener("127.0.0.1").endpoint(); }
  try {
    ServeProbe(endpoint, kSecret);
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("cannot connect to tcp://127.0.0.1:"));
  }
}

TEST(LinkProbeTest, AStrangerThatSaysNothingIsNoPeer) {
  const ProbeListener listener("127.0.0.1");
  {
    const UniqueFd stranger =
        ResolvedAddress(TcpAddress::Parse(listener.endpoint())).StartToConnect();
  }
  EXPECT_EQ(listener.Accept().secret, "");
}

TEST(SshArgumentsTest, NeverWaitForAPassword) {
  const std::vector<std::string> words =
      SshArguments({.words = ParseSsh("ssh -F 'my file'"), .muster = "/a b/muster"}, "me@b");
  EXPECT_EQ(words[1], "my file");
  EXPECT_THAT(words, IsSupersetOf({"BatchMode=yes", "ConnectTimeout=10", "ControlMaster=no"}));
  EXPECT_EQ(words[words.size() - 2], "me@b");
  EXPECT_EQ(words.back(), "'/a b/muster' --version && exec '/a b/muster' host");
  EXPECT_THROW(ParseSsh("ssh 'x"), Error);
  EXPECT_THROW(ParseSsh(" "), Error);
}

TEST(HostTableTest, ARowForEachHost) {
  CheckedHost good{.host = {.name = "a", .slots = 4}};
  good.facts = {.version = "1.0", .processor = "Some CPU", .instructions = "AVX2", .cores = 8};
  good.facts.data.train = 50'000;
  good.facts.data.test = 10'000;
  good.link = {.latency_s = 0.0002, .clock_offset_s = -0.0034};
  CheckedHost bad{
      .host = {.name = "b", .slots = 2}, .problem = "host b: gone", .code = ExitCode::kRefused};
  const std::vector<std::string> lines = HostTable({good, bad}, /*has_job=*/true);
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_THAT(lines[2], HasSubstr("50,000 + 10,000"));
  EXPECT_THAT(lines[2], HasSubstr("-3.4 ms"));
  EXPECT_THAT(lines[3], HasSubstr("b           2  -"));
  EXPECT_NO_THROW(RequireGood({good}));
  try {
    RequireGood({good, bad});
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kRefused);
    EXPECT_STREQ(error.what(), "host b: gone");
  }
  EXPECT_EQ(OffsetText(2.14), "+2.1 s");
}

}  // namespace
}  // namespace muster
