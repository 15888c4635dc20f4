// Hosts that cannot take part in a job over ssh, and `muster doctor --hosts`.
#include <iterator>
#include <map>
#include <regex>
#include <sstream>

#include "tests/e2e/ssh_fixture.h"

namespace muster::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

TEST_F(Ssh, AHostThatCannotTakePartIsNamedBeforeTheStart) {
  ExpectFailure("a:1,old:1", ExitCode::kRefused, {}, "host old: expected Muster ");
  ExpectFailure("a:1,absent:1", ExitCode::kFailure, {},
                "host absent: ssh ended with exit code 255");
  ExpectFailure("a:1,stranger:1", ExitCode::kFailure, {}, "Host key verification failed");
  ExpectFailure("a:1,b:1", ExitCode::kUsage, {"cluster.interface=lo"},
                "but that address (lo) is known only on this host");
  ExpectFailure("a:1,b:1", ExitCode::kUsage, {"cluster.interface=eth7"}, "known: ");
}

TEST_F(Ssh, AMachineIsNamedOnce) {
  ExpectFailure("a:1,10.98.0.2:1", ExitCode::kUsage, {},
                "host 10.98.0.2: expected another machine than that of host a");
  ExpectFailure("localhost:1,here:1,a:1", ExitCode::kUsage, {},
                "localhost and here both name this host");
  ExpectFailure("a:1,b:1", ExitCode::kUsage, {"worker.threads=0"},
                "worker.threads=0: expected a number with -H");
}

// The rows of the table below this title, by their first cell.
std::map<std::string, std::vector<std::string>> Rows(const std::string& log,
                                                     const std::string& title) {
  std::map<std::string, std::vector<std::string>> rows;
  std::istringstream lines(log.substr(std::min(log.size(), log.find(title))));
  std::string line;
  for (std::getline(lines, line); std::getline(lines, line) && !line.empty();) {
    std::istringstream cells(std::regex_replace(line, std::regex("([0-9]) "), "$1_"));
    std::string name;
    cells >> name;
    rows[name] = {std::istream_iterator<std::string>(cells), {}};
  }
  return rows;
}

TEST_F(Ssh, DoctorMeasuresTheNetworkBetweenAllHosts) {
  const auto good = Muster({"doctor", "--hosts", "a,here,b,c"});
  EXPECT_EQ(good->Wait(60), 0) << good->Log();
  EXPECT_THAT(good->Log(),
              AllOf(HasSubstr("10.98.0.1 over br0, MTU 1500"), ContainsRegex("a .*eth0"),
                    HasSubstr("Runs on these hosts will work.")));
  const auto latencies = Rows(good->Log(), "Latency:"), rates = Rows(good->Log(), "Bandwidth,");
  const Words names{"here", "a", "b", "c"};
  for (size_t row = 0; row < names.size(); ++row) {
    ASSERT_EQ(rates.at(names[row]).size(), names.size()) << good->Log();
    for (size_t column = 0; column < names.size(); ++column) {
      const std::string rate = rates.at(names[row])[column],
                        latency = latencies.at(names[row])[column];
      EXPECT_EQ(rate.ends_with("B/s"), row != column) << rate;
      EXPECT_EQ(latency.ends_with("_ms"), row != column) << latency;
      EXPECT_EQ(latency, latencies.at(names[column])[row]);
    }
  }
  EXPECT_TRUE(NothingLeftAnywhere());
}

TEST_F(Ssh, DoctorNamesHostsThatDoNotReachOneAnother) {
  hosts_->Run("ip -n c route add unreachable 10.98.0.2/32");
  const auto doctor = Muster({"doctor", "--hosts", "a,b,c"});
  EXPECT_EQ(doctor->Wait(60), 0) << doctor->Log();
  const auto rates = Rows(doctor->Log(), "Bandwidth,");
  EXPECT_EQ(rates.at("a").back(), "fails");
  EXPECT_EQ(rates.at("c")[1], "fails") << "after this host";
  EXPECT_NE(rates.at("b").back(), "fails");
  EXPECT_THAT(doctor->Log(),
              HasSubstr("Host c does not reach host a at 10.98.0.2: cannot connect"));
  EXPECT_TRUE(NothingLeftAnywhere());
}

TEST_F(Ssh, DoctorMeasuresTheOthersIfAHostFails) {
  const auto doctor = Muster({"doctor", "--hosts", "a,absent,b"});
  EXPECT_EQ(doctor->Wait(60), 1) << doctor->Log();
  const auto rates = Rows(doctor->Log(), "Bandwidth,");
  EXPECT_TRUE(rates.at("b")[1].ends_with("B/s")) << doctor->Log();
  EXPECT_EQ(rates.count("absent"), 0u);
  EXPECT_THAT(doctor->Log(), AllOf(HasSubstr("1 host failed."), HasSubstr("host absent: ssh ")));
  EXPECT_TRUE(NothingLeftAnywhere());
}

}  // namespace
}  // namespace muster::testing
