#include "cli/hosts/link_probe.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <cmath>
#include <set>
#include <thread>

#include "cli/hosts/host_check.h"
#include "cli/hosts/pair_probe.h"
#include "common/base/error.h"
#include "common/link/tcp_address.h"

namespace muster {
namespace {

using ::testing::HasSubstr;
using ::testing::IsSupersetOf;

constexpr const char* kSecret = "0123456789abcdef0123456789abcdef";

TEST(LinkProbeTest, MeasuresLatencyClockAndBandwidth) {
  ProbeListener listener("127.0.0.1");
  std::string address;
  std::jthread other([&] { address = ServeProbe(listener.endpoint(), kSecret); });
  LinkFacts facts;
  {
    const UniqueFd peer = listener.Await(kSecret);
    ASSERT_TRUE(peer.valid());
    facts = MeasureLink(peer, /*bandwidth=*/true);
  }
  other.join();
  EXPECT_EQ(address, "127.0.0.1");
  EXPECT_GT(facts.latency_s, 0);
  EXPECT_LT(std::abs(facts.clock_offset_s), 1) << "both read the same clock";
  EXPECT_LT(std::abs(facts.monotonic_offset_s), 1);
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

UniqueFd Connected(const ProbeListener& listener, const std::string& says) {
  UniqueFd fd = ResolvedAddress(TcpAddress::Parse(listener.endpoint())).StartToConnect();
  pollfd event{.fd = fd.get(), .events = POLLOUT};
  EXPECT_EQ(::poll(&event, 1, 5000), 1);
  EXPECT_EQ(::send(fd.get(), says.data(), says.size(), 0), std::ssize(says));
  return fd;
}

TEST(LinkProbeTest, StrangersDoNotDisturb) {
  ProbeListener listener("127.0.0.1");
  std::vector<UniqueFd> strangers;
  for (int i = 0; i < 100; ++i) {
    strangers.push_back(Connected(listener, i % 2 == 0 ? "" : "hello"));
    EXPECT_FALSE(listener.Take().fd.valid());
  }
  strangers.push_back(Connected(listener, std::string(32, 'x')));
  Connected(listener, "gone");
  const UniqueFd expected = Connected(listener, kSecret);
  EXPECT_TRUE(listener.Await(kSecret).valid());
  EXPECT_LE(listener.fds().size(), 65u);
}

TEST(PairRounds, EachPairOnceAndNoHostTwiceInARound) {
  for (size_t hosts = 0; hosts <= 17; ++hosts) {
    std::set<std::pair<size_t, size_t>> pairs;
    const auto rounds = PairRounds(hosts);
    for (const auto& round : rounds) {
      std::set<size_t> busy;
      for (const auto& [first, second] : round) {
        EXPECT_LT(first, second);
        EXPECT_LT(second, hosts);
        EXPECT_TRUE(busy.insert(first).second && busy.insert(second).second);
        EXPECT_TRUE(pairs.insert({first, second}).second);
      }
    }
    EXPECT_EQ(pairs.size(), hosts * (hosts - (hosts > 0)) / 2) << hosts;
    EXPECT_LE(rounds.size(), hosts);
  }
}

TEST(SshArgumentsTest, NeverWaitForAPassword) {
  const std::vector<std::string> words =
      SshArguments({.words = ParseSsh("ssh -F 'my file'"), .muster = "/a b/muster"}, "me@b");
  EXPECT_EQ(words[1], "my file");
  EXPECT_THAT(words, IsSupersetOf({"BatchMode=yes", "ConnectTimeout=10", "ControlMaster=no"}));
  EXPECT_THAT(words, IsSupersetOf({"ServerAliveInterval=5", "ServerAliveCountMax=3"}));
  EXPECT_THAT(words, IsSupersetOf({"ClearAllForwardings=yes", "RemoteCommand=none"}));
  EXPECT_EQ(words[words.size() - 3], "--");
  EXPECT_EQ(words[words.size() - 2], "me@b");
  EXPECT_EQ(words.back(), "'/a b/muster' --version && exec '/a b/muster' host");
  EXPECT_THROW(ParseSsh("ssh 'x"), Error);
  EXPECT_THROW(ParseSsh(" "), Error);
}

TEST(SshArgumentsTest, GiveUpNoSoonerThanTheJob) {
  const auto of = [](double silence_s) { return PatientSsh({}, silence_s).most_unanswered; };
  EXPECT_EQ(of(2), 2);
  EXPECT_EQ(of(20), 5);
  EXPECT_EQ(of(21), 6);
}

CheckedHost Counted(const std::string& name, int64_t train, int64_t validation) {
  CheckedHost host{.host = {.name = name}};
  host.facts = {.boot = "1234", .hostname = name, .processor = "Some CPU", .cores = 8};
  host.facts.data.train = train;
  host.facts.data.validation = validation;
  host.facts.data.test = 1000;
  return host;
}

TEST(HostCompareTest, TheSameNumberOfSamples) {
  std::vector<CheckedHost> hosts{Counted("a", 4500, 500), Counted("b", 4500, 500),
                                 Counted("c", 5000, 0)};
  CompareData(hosts);
  EXPECT_EQ(hosts[1].problem, "");
  EXPECT_EQ(hosts[2].problem,
            "host c: expected the 4,500 training, 500 validation and 1,000 test samples of host a, "
            "got 5,000 training and 1,000 test samples; copy the same data to all hosts");
  EXPECT_EQ(hosts[2].code, ExitCode::kRefused);
}

TEST(HostCompareTest, AMachineHasOneName) {
  std::vector<CheckedHost> hosts{Counted("a", 1, 0), Counted("b", 1, 0), Counted("10.0.0.1", 1, 0)};
  CompareMachines(hosts);
  EXPECT_EQ(hosts[2].problem, "") << "containers have the kernel of their machine";
  hosts[2].facts.hostname = "a";
  CompareMachines(hosts);
  EXPECT_EQ(hosts[1].problem, "");
  EXPECT_THAT(hosts[2].problem, HasSubstr("host 10.0.0.1: expected another machine than that of "
                                          "host a, got the same one (a)"));
  EXPECT_EQ(hosts[2].code, ExitCode::kUsage);
}

TEST(HostCompareTest, OtherProcessorsAreNamed) {
  std::vector<CheckedHost> hosts{
      {.host = {.name = "gone"}}, Counted("a", 1, 0), Counted("b", 1, 0)};
  EXPECT_EQ(ProcessorsNote(hosts), "");
  hosts[2].facts.processor = "Another";
  EXPECT_THAT(ProcessorsNote(hosts), HasSubstr("the processors of hosts a and b differ."));
}

TEST(HostTableTest, ARowForEachHost) {
  CheckedHost good{.host = {.name = "a", .slots = 4}};
  good.facts = {.version = "1.0", .processor = "Some CPU", .instructions = "AVX2", .cores = 8};
  good.facts.data.train = 50'000;
  good.facts.data.test = 10'000;
  good.link = {.latency_s = 0.0002, .clock_offset_s = -0.0034};
  CheckedHost bad{
      .host = {.name = "b", .slots = 2}, .problem = "host b: gone", .code = ExitCode::kRefused};
  const std::vector<std::string> lines = HostTable({good, bad}, TableFor::kJob);
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
