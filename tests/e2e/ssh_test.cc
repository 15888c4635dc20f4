// `muster launch -H` on hosts with a real sshd: its options, its end, and what is lost on the way.
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/e2e/ssh_fixture.h"

namespace muster::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kEndless = "run.epochs=100000";

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

// A session that ends sends signals to all its processes. The launcher then saves the run, for
// which it needs its connections.
TEST_F(Ssh, SignalsToTheSshClientsChangeNothing) {
  const auto launch = Start("a:2", {kEndless});
  ASSERT_TRUE(Reaches("run", 3)) << launch->Log();
  int clients = 0;
  for (const pid_t pid : hosts_->Find(" host")) {
    if (Slurp(fmt::format("/proc/{}/comm", pid)) != "ssh\n") continue;
    ++clients;
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::kill(pid, signal);
  }
  EXPECT_EQ(clients, 1);
  EXPECT_TRUE(Reaches("run", Metrics("run").back()["step"].get<int64_t>() + 100)) << launch->Log();
  Signal(SIGTERM);
  EXPECT_EQ(launch->Wait(30), Code(ExitCode::kTerminated)) << launch->Log();
  EXPECT_TRUE(NothingLeftAnywhere());
  EXPECT_THAT(launch->Log(), Not(HasSubstr("Lost rank")));
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
        if (word.starts_with("local://@muster-relay-")) continue;  // random, too, but no secret
        EXPECT_TRUE(FirstMatch("(^|[^0-9a-f])[0-9a-f]{32}([^0-9a-f]|$)", word).empty()) << word;
      }
    }
  }
  Signal(SIGTERM);
  EXPECT_EQ(launch->Wait(30), 143) << launch->Log();
}

// A build replaces the program for a moment.
TEST_F(Ssh, AReplacementThatCannotBeStartedYetIsStartedLater) {
  std::filesystem::create_directory(Path("bin"));
  for (const std::string name : {"muster", "muster-server", "muster-worker"}) {
    std::filesystem::copy_file(BinPath(name), Path("bin") / name);
  }
  const Process launch(
      hosts_->Inside({Path("bin/muster"), "launch", Path("config.txtpb"), "--run-dir", Path("run"),
                      "-H", "a:1,b:1", "--ssh", hosts_->ssh(), "--set", kEndless}),
      Path("run.log"));
  ASSERT_TRUE(Reaches("run", 20)) << launch.Log();
  std::filesystem::rename(Path("bin/muster-worker"), Path("bin/away"));
  const pid_t worker = Worker(1);
  ASSERT_GT(worker, 0);
  ::kill(worker, SIGKILL);
  ASSERT_TRUE(launch.Says("cannot replace rank 1: cannot execute ")) << launch.Log();
  std::filesystem::rename(Path("bin/away"), Path("bin/muster-worker"));
  EXPECT_TRUE(launch.Says("Joined: rank 1")) << launch.Log();
  EXPECT_THAT(launch.Log(), Not(HasSubstr("lost the host")));
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

}  // namespace
}  // namespace muster::testing
