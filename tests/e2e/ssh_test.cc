// `muster launch -H` on hosts with a real sshd.
#include <fmt/core.h>
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>

#include "common/base/text.h"
#include "tests/e2e/hand_job.h"
#include "tests/e2e/ssh_cluster.h"

namespace muster::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

const std::vector<std::string> kLongRun{"run.epochs=300", "evaluation.every_epochs=0"};
const std::vector<std::string> kSixSlices{"run.epochs=300", "evaluation.every_epochs=0",
                                          "run.slices=6"};
constexpr const char* kEndless = "run.epochs=100000";

class Ssh : public HandJob {
 protected:
  void SetUp() override {
    if (const std::string why = SshCluster::WhyNot(); !why.empty()) GTEST_SKIP() << why;
    hosts_ = std::make_unique<SshCluster>();
    ASSERT_TRUE(hosts_->IsUp());
  }

  // Starts a launch on the hosts of this list.
  std::unique_ptr<Process> Start(const std::string& list, const std::vector<std::string>& settings,
                                 const Words& options = {}) {
    Words words{"launch", Path("config.txtpb"), "--run-dir", Path("run"), "-H", list};
    for (const std::string& setting : settings) words.insert(words.end(), {"--set", setting});
    words.insert(words.end(), options.begin(), options.end());
    return Muster(words);
  }
  std::unique_ptr<Process> Muster(Words words) {
    words.insert(words.begin(), std::string(MUSTER_BIN_DIR) + "/muster");
    words.insert(words.end(), {"--ssh", hosts_->ssh()});
    return std::make_unique<Process>(hosts_->Inside(words), Path("run.log"));
  }
  // Signals the launcher itself, not the nsenter around it.
  void Signal(int signal) {
    for (const pid_t pid : hosts_->Find("muster launch ")) {
      const std::string command = Slurp(fmt::format("/proc/{}/cmdline", pid));
      if (command.starts_with(MUSTER_BIN_DIR)) ::kill(pid, signal);
    }
  }
  ::testing::AssertionResult NothingLeftAnywhere(double seconds = 20) {
    std::vector<pid_t> left;
    if (Eventually(seconds, [&] { return (left = hosts_->Find(MUSTER_BIN_DIR)).empty(); })) {
      return ::testing::AssertionSuccess();
    }
    return ::testing::AssertionFailure() << "still running: " << Join(left, ", ");
  }
  void ExpectTheSameBits(Process& launch, const std::vector<std::string>& settings) {
    ASSERT_EQ(launch.Wait(100), 0) << launch.Log() << Slurp(Path("run/ssh.log"));
    EXPECT_TRUE(NothingLeftAnywhere());
    const Outcome here = Succeeded(Launch(settings));
    EXPECT_EQ(Metrics("run").back()["weights_hash"], here.hash());
  }
  void ExpectFailure(const std::string& list, ExitCode code,
                     const std::vector<std::string>& settings, const std::string& why) {
    const auto launch = Start(list, settings);
    EXPECT_EQ(launch->Wait(60), Code(code)) << launch->Log();
    EXPECT_THAT(launch->Log(), HasSubstr(why));
    EXPECT_FALSE(std::filesystem::exists(Path("run")));
    EXPECT_TRUE(NothingLeftAnywhere());
  }
  void KillServer() const {
    const pid_t server = RealJob::Find("run", -1);
    ASSERT_GT(server, 0);
    ::kill(server, SIGKILL);
  }
  pid_t Worker(int rank) const {
    const std::vector<pid_t> found =
        hosts_->Find(fmt::format("muster-worker --config /proc/self/fd/"));
    for (const pid_t pid : found) {
      std::string command = Slurp(fmt::format("/proc/{}/cmdline", pid));
      std::ranges::replace(command, '\0', ' ');
      if (command.find(fmt::format("--rank {} ", rank)) != std::string::npos) return pid;
    }
    return -1;
  }

  std::unique_ptr<SshCluster> hosts_;
};

TEST_F(Ssh, TheSameBitsAsOnOneHost) {
  const auto launch = Start("a:1,here:1,b:2", {"run.slices=4"});
  ASSERT_EQ(launch->Wait(60), 0) << launch->Log();
  const std::string log = launch->Log();
  EXPECT_THAT(
      log, AllOf(HasSubstr("4 workers on 3 hosts over ssh: a (1),"),
                 HasSubstr("tcp://10.98.0.1:* over br0, through relays"), HasSubstr("300 + 40")));
  // The relay of b leads to that of a, and that one to the server.
  EXPECT_THAT(Slurp(Path("run/worker-0.log")),
              AllOf(HasSubstr("to tcp://10.98.0.1:"), HasSubstr("over shared memory")));
  EXPECT_THAT(Slurp(Path("run/worker-2.log")),
              AllOf(HasSubstr("to tcp://10.98.0.2:"), HasSubstr("over shared memory")));
  EXPECT_THAT(Slurp(Path("run/worker-1.log")), Not(HasSubstr("relay")));
  EXPECT_TRUE(NothingLeftAnywhere());
  const Outcome here = Succeeded(Launch({"run.slices=4"}));
  EXPECT_EQ(Metrics("run").back()["weights_hash"], here.hash());
}

TEST_F(Ssh, WithoutSumsEachWorkerHasAConnection) {
  const auto launch = Start("a:1,b:2", {"cluster.host_sums=false", "run.slices=3"});
  ExpectTheSameBits(*launch, {"run.slices=3"});
  for (const int rank : {0, 1, 2}) {
    EXPECT_THAT(Slurp(Path(fmt::format("run/worker-{}.log", rank))),
                AllOf(HasSubstr("tcp://10.98.0.1:"), HasSubstr("over ZeroMQ")));
  }
}

TEST_F(Ssh, TheSameBitsWithSixteenBits) {
  const std::vector<std::string> settings{"run.slices=8", "cluster.wire_dtype=BF16",
                                          "worker.threads=1"};
  const auto launch = Start("a:2,here:1,b:2,c:3", settings);
  ExpectTheSameBits(*launch, settings);
  EXPECT_THAT(Slurp(Path("run/worker-7.log")), HasSubstr("over shared memory"));
}

// The relay of a carries the workers of b and c, too.
TEST_F(Ssh, AKilledRelay) {
  const auto launch = Start("a:2,b:2,c:2", kSixSlices);
  ASSERT_TRUE(Reaches("run", 3)) << launch->Log();
  const std::vector<pid_t> relays = hosts_->Find("--relay-bind tcp://10.98.0.2:");
  ASSERT_EQ(relays.size(), 1u);
  ::kill(relays[0], SIGKILL);
  ExpectTheSameBits(*launch, kSixSlices);
  EXPECT_THAT(launch->Log(),
              AllOf(HasSubstr("lost the relay of host a, and its workers with it: killed"),
                    HasSubstr("Joined: rank 5")));
}

// The others go on through a relay that does not lose their work.
TEST_F(Ssh, AStoppedRelay) {
  std::vector<std::string> settings = kLongRun;
  settings.emplace_back("deadlines.silence_s=2");
  const auto launch = Start("a:2", settings);
  ASSERT_TRUE(Reaches("run", 3)) << launch->Log();
  const std::vector<pid_t> relays = hosts_->Find("--relay local://");
  ASSERT_EQ(relays.size(), 1u);
  ::kill(relays[0], SIGSTOP);
  ExpectTheSameBits(*launch, settings);
  EXPECT_THAT(launch->Log(),
              HasSubstr("lost the relay of host a, and its workers with it: killed"));
}

// The relay of b then leads to the server.
TEST_F(Ssh, AKilledHostWhoseRelayCarriedAnother) {
  std::vector<std::string> settings = kLongRun;
  settings.emplace_back("run.slices=3");
  const auto launch = Start("a:1,b:2", settings);
  ASSERT_TRUE(Reaches("run", 3)) << launch->Log();
  hosts_->Kill("a");
  ExpectTheSameBits(*launch, settings);
  EXPECT_THAT(launch->Log(), AllOf(HasSubstr("Warning: lost the host a: ssh "),
                                   HasSubstr("Joined: rank 2"), Not(HasSubstr("Joined: rank 0"))));
  EXPECT_THAT(Slurp(Path("run/worker-1.log")) + Slurp(Path("run/worker-2.log")),
              HasSubstr("does not answer; going to the server directly"));
}

TEST_F(Ssh, AKilledWorkerBehindTwoRelays) {
  const auto launch = Start("a:2,b:2,c:2", kSixSlices);
  ASSERT_TRUE(Reaches("run", 3)) << launch->Log();
  const pid_t worker = Worker(3);
  ASSERT_GT(worker, 0);
  ::kill(worker, SIGKILL);
  ExpectTheSameBits(*launch, kSixSlices);
  EXPECT_THAT(launch->Log(), HasSubstr("Joined: rank 3"));
}

// A program that trains its own model, through relays.
TEST_F(Ssh, AProgramOnThreeHosts) {
  const std::string program = std::string(MUSTER_BIN_DIR) + "/c_linear";
  const std::string config = std::string(MUSTER_SOURCE_DIR) + "/examples/c_linear/linear.txtpb";
  const Words job{"launch", config, "--epochs", "300", "--set", "run.slices=6"};
  Words here = job, there = job;
  here.insert(here.end(), {"--run-dir", Path("one"), "--workers", "1", "--", program});
  const Outcome expected = Succeeded(RealJob::Muster(here, "one"));
  there.insert(there.begin(), std::string(MUSTER_BIN_DIR) + "/muster");
  there.insert(there.end(), {"--run-dir", Path("run"), "--ssh", hosts_->ssh(), "-H",
                             "a:2,here:1,b:3", "--", program});
  Process launch(hosts_->Inside(there), Path("run.log"));
  ASSERT_TRUE(Reaches("run", 20)) << launch.Log();
  const std::vector<pid_t> programs = hosts_->Find("c_linear");
  const auto victim = std::ranges::find_if(programs, [](pid_t pid) {
    return Slurp(fmt::format("/proc/{}/environ", pid)).find("MUSTER_RANK=4") != std::string::npos;
  });
  ASSERT_NE(victim, programs.end());
  ::kill(*victim, SIGKILL);
  ASSERT_EQ(launch.Wait(100), 0) << launch.Log();
  EXPECT_THAT(launch.Log(), HasSubstr("Joined: rank 4"));
  EXPECT_THAT(Slurp(Path("run/worker-0.log")), HasSubstr("y = "));
  EXPECT_TRUE(NothingLeftAnywhere());
  EXPECT_EQ(Metrics("run").back()["weights_hash"], expected.hash());
}

// As mpirun starts them on a host without the server.
TEST_F(Ssh, WorkersOfALauncherShareARelay) {
  const Words server_words{std::string(MUSTER_BIN_DIR) + "/muster",
                           "server",
                           Path("config.txtpb"),
                           "--run-dir",
                           Path("run"),
                           "--endpoint",
                           "tcp://10.98.0.1:*",
                           "--token-file",
                           TokenFile()};
  Process server(hosts_->Inside(server_words), Path("server.log"));
  std::string endpoint;
  ASSERT_TRUE(Eventually(20, [&] { return !(endpoint = Endpoint(server)).empty(); }));
  std::vector<std::unique_ptr<Process>> workers;
  for (const char* const rank : {"0", "1"}) {
    const std::string number = rank;
    workers.push_back(std::make_unique<Process>(
        hosts_->Inside({"ip", "netns", "exec", "a", "env", "OMPI_COMM_WORLD_RANK=" + number,
                        "OMPI_COMM_WORLD_LOCAL_RANK=" + number, "OMPI_COMM_WORLD_SIZE=2",
                        "OMPI_COMM_WORLD_LOCAL_SIZE=2", std::string(MUSTER_BIN_DIR) + "/muster",
                        "worker", Path("run/config.txtpb"), "--endpoint", endpoint, "--token-file",
                        TokenFile()}),
        Path("worker-" + number + ".out")));
  }
  EXPECT_EQ(server.Wait(60), 0) << server.Log();
  for (const auto& worker : workers) {
    EXPECT_EQ(worker->Wait(20), 0) << worker->Log();
    EXPECT_THAT(worker->Log(), HasSubstr("over shared memory"));
  }
  EXPECT_THAT(workers[0]->Log(), HasSubstr("relay info: connecting the workers at local://"));
  EXPECT_TRUE(NothingLeftAnywhere());
  EXPECT_EQ(Metrics("run").back()["weights_hash"], LaunchedHash());
}

// The processes of a trace with spans, and the numbers of those at which arrows begin or end.
struct SeenTrace {
  std::set<std::string> processes, pushed, waited;
};
SeenTrace ReadTraceFile(const std::filesystem::path& path) {
  SeenTrace seen;
  const auto trace = nlohmann::json::parse(Slurp(path));
  std::map<int, std::string> names;
  for (const auto& event : trace.at("traceEvents")) {
    if (event["name"] == "process_name") names[event["pid"]] = event["args"]["name"];
  }
  for (const auto& event : trace.at("traceEvents")) {
    const std::string& process = names.at(event["pid"]);
    if (event["ph"] == "X") seen.processes.insert(process);
    if (event["ph"] == "s" && event["name"] == "gradient") seen.pushed.insert(process);
    if (event["ph"] == "f" && event["name"] == "weights") seen.waited.insert(process);
  }
  return seen;
}
const std::vector<std::string> kTracedSteps{"run.trace_first_step=2", "run.trace_steps=3"};

// An arrow from a push to its update, or from an update to those who waited, is left out if its end
// is before its beginning.
TEST_F(Ssh, ATraceHasTheThreadsOfAllHostsAligned) {
  std::vector<std::string> settings{"run.slices=6"};
  settings.insert(settings.end(), kTracedSteps.begin(), kTracedSteps.end());
  const auto launch = Start("a:1,here:1,b:2", settings, {"--trace", Path("trace.json")});
  ASSERT_EQ(launch->Wait(60), 0) << launch->Log();
  const SeenTrace seen = ReadTraceFile(Path("trace.json"));
  const std::set<std::string> workers{"worker 0", "worker 1", "worker 2", "worker 3"};
  EXPECT_EQ(seen.pushed, workers);
  EXPECT_EQ(seen.waited, workers);
  EXPECT_EQ(seen.processes.size(), workers.size() + 1);
  EXPECT_FALSE(std::filesystem::exists(Path("run/trace.worker-3.part")));
  EXPECT_TRUE(NothingLeftAnywhere());
  const Outcome here = Succeeded(Launch({"run.slices=6"}));
  EXPECT_EQ(Metrics("run").back()["weights_hash"], here.hash());
}

TEST_F(Ssh, ATraceLacksALostHost) {
  std::vector<std::string> settings = kLongRun;
  settings.insert(settings.end(), kTracedSteps.begin(), kTracedSteps.end());
  const auto launch = Start("a:1,b:1", settings, {"--trace", Path("trace.json")});
  ASSERT_TRUE(Reaches("run", 20)) << launch->Log();
  hosts_->Kill("b");
  ExpectTheSameBits(*launch, kLongRun);
  EXPECT_EQ(ReadTraceFile(Path("trace.json")).processes,
            (std::set<std::string>{"server", "worker 0"}));
  EXPECT_THAT(launch->Log(), HasSubstr("the trace lacks a process: there is no "));
}

TEST_F(Ssh, StepsToTraceThatTheRunDoesNotHave) {
  ExpectFailure("a:1,b:1", ExitCode::kUsage,
                {"run.trace_file=t.json", "run.trace_first_step=100000"}, "run.trace_first_step");
}

TEST_F(Ssh, ADryRunChecksTheHostsAndStartsNothing) {
  const auto launch = Start("a:1,here:1,b:2", {"run.slices=4"}, {"--dry-run", "--verbose"});
  ASSERT_EQ(launch->Wait(60), 0) << launch->Log();
  EXPECT_THAT(launch->Log(),
              AllOf(HasSubstr("4 workers on 3 hosts over ssh: a (1),"), ContainsRegex("0 +a, cpu"),
                    ContainsRegex("1 +here, cpu"), ContainsRegex("3 +b, cpu"),
                    HasSubstr("300 for training"), HasSubstr("chunk_bytes: 1024\n"),
                    HasSubstr("nothing was started or written")));
  EXPECT_FALSE(std::filesystem::exists(Path("run")));
  EXPECT_TRUE(NothingLeftAnywhere());
}

TEST_F(Ssh, HostsFromAFile) {
  const std::string file = Write("hosts", "# two hosts\na slots=1\nb:1  # the second\n");
  const auto launch =
      Muster({"launch", Path("config.txtpb"), "--run-dir", Path("run"), "--hostfile", file});
  ExpectTheSameBits(*launch, {});
}

TEST_F(Ssh, CtrlCLeavesNothing) {
  const auto launch = Start("a:1,b:1", {kEndless});
  ASSERT_TRUE(Reaches("run", 3)) << launch->Log();
  Signal(SIGINT);
  EXPECT_EQ(launch->Wait(30), 130) << launch->Log();
  EXPECT_TRUE(NothingLeftAnywhere());
  EXPECT_EQ(Metrics("run").back()["reason"], "interrupted");
}

TEST_F(Ssh, AKilledLauncherLeavesNothing) {
  const auto launch = Start("a:1,b:1", {kEndless});
  ASSERT_TRUE(Reaches("run", 3)) << launch->Log();
  Signal(SIGKILL);
  EXPECT_NE(launch->Wait(30), 0);
  EXPECT_TRUE(NothingLeftAnywhere());
}

// Not in an argument or in the environment of any process.
TEST_F(Ssh, TheTokenIsNowhere) {
  const auto launch = Start("a:1,b:1", {kEndless});
  ASSERT_TRUE(Reaches("run", 3)) << launch->Log();
  const std::vector<pid_t> all = hosts_->Find("muster");
  const std::string mine = Slurp("/proc/self/environ");
  EXPECT_GE(all.size(), 8u);  // launcher, server, and ssh, agent and worker of both hosts
  for (const pid_t pid : all) {
    for (const char* file : {"cmdline", "environ"}) {
      std::istringstream words(Slurp(fmt::format("/proc/{}/{}", pid, file)));
      for (std::string word; std::getline(words, word, '\0');) {
        if (mine.find(word) != std::string::npos) continue;  // such as systemd's INVOCATION_ID
        EXPECT_TRUE(FirstMatch("(^|[^0-9a-f])[0-9a-f]{32}([^0-9a-f]|$)", word).empty()) << word;
      }
    }
  }
  Signal(SIGTERM);
  EXPECT_EQ(launch->Wait(30), 143) << launch->Log();
}

TEST_F(Ssh, AKilledWorkerIsReplaced) {
  const auto launch = Start("a:1,b:1", kLongRun);
  ASSERT_TRUE(Reaches("run", 20)) << launch->Log();
  const pid_t worker = Worker(1);
  ASSERT_GT(worker, 0);
  ::kill(worker, SIGKILL);
  ExpectTheSameBits(*launch, kLongRun);
  EXPECT_THAT(launch->Log(),
              AllOf(HasSubstr("was killed by SIGKILL"), HasSubstr("Joined: rank 1")));
}

TEST_F(Ssh, AKilledHost) {
  const auto launch = Start("a:1,b:1", kLongRun);
  ASSERT_TRUE(Reaches("run", 20)) << launch->Log();
  hosts_->Kill("b");
  ExpectTheSameBits(*launch, kLongRun);
  EXPECT_THAT(launch->Log(), AllOf(HasSubstr("Warning: lost the host b: ssh "),
                                   HasSubstr("; without rank 1"), Not(HasSubstr("Joined"))));
}

TEST_F(Ssh, WithAbortAKilledHostEndsTheRun) {
  const auto launch = Start("a:1,b:1", {kEndless, "cluster.on_lost_worker=ABORT"});
  ASSERT_TRUE(Reaches("run", 20)) << launch->Log();
  hosts_->Kill("b");
  EXPECT_EQ(launch->Wait(30), Code(ExitCode::kProcessDied)) << launch->Log();
  EXPECT_THAT(launch->Log(),
              AllOf(HasSubstr("rank 1 on b at step "), HasSubstr(": lost the host b: ssh "),
                    HasSubstr(" -H a:1,b:1 --ssh 'ssh -F ")));
  EXPECT_TRUE(NothingLeftAnywhere());
}

TEST_F(Ssh, AnUnpluggedHost) {
  std::vector<std::string> settings = kLongRun;
  settings.emplace_back("deadlines.silence_s=2");
  const auto launch = Start("a:1,b:1", settings);
  ASSERT_TRUE(Reaches("run", 20)) << launch->Log();
  hosts_->Unplug("b");
  ExpectTheSameBits(*launch, kLongRun);
  EXPECT_THAT(launch->Log(), HasSubstr("Lost rank 1"));
}

TEST_F(Ssh, ALostServerIsStartedAgain) {
  const auto launch = Start("a:1,b:1", kLongRun);
  ASSERT_TRUE(Reaches("run", 20)) << launch->Log();
  KillServer();
  ExpectTheSameBits(*launch, kLongRun);
  EXPECT_THAT(launch->Log(), HasSubstr("Restarting from "));
}

TEST_F(Ssh, ALostServerIsStartedAgainWithoutALostHost) {
  const auto launch = Start("a:1,b:1", kLongRun);
  ASSERT_TRUE(Reaches("run", 20)) << launch->Log();
  hosts_->Kill("b");
  const auto is_lost = [&] { return launch->Log().find("lost the host b: ") != std::string::npos; };
  ASSERT_TRUE(Eventually(20, is_lost)) << launch->Log();
  KillServer();
  ExpectTheSameBits(*launch, kLongRun);
  EXPECT_THAT(launch->Log(), HasSubstr("Restarting from "));
}

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
