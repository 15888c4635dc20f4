// Workers on hosts with a real sshd send one gradient together, through relays, with the same bits.
#include "tests/base/paths.h"
#include "tests/e2e/ssh_fixture.h"

namespace muster::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::vector<std::string> kSixSlices{"run.epochs=300", "evaluation.every_epochs=0",
                                          "run.slices=6"};

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
  const std::vector<pid_t> relays = hosts_->Find("--bind tcp://10.98.0.2:");
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
  const std::vector<pid_t> relays = hosts_->Find("relay --listen local://");
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
  const std::string program = BinPath("c_linear");
  const std::string config = SourcePath("examples/c_linear/linear.txtpb");
  const Words job{"launch", config, "--epochs", "150", "--set", "run.slices=6"};
  Words here = job, there = job;
  here.insert(here.end(), {"--run-dir", Path("one"), "--workers", "1", "--", program});
  const Outcome expected = Succeeded(RealJob::Muster(here, "one"));
  there.insert(there.begin(), BinPath("muster"));
  there.insert(there.end(), {"--run-dir", Path("run"), "--ssh", hosts_->ssh(), "-H",
                             "a:2,here:1,b:3", "--", program});
  Process launch(hosts_->Inside(there), Path("run.log"));
  ASSERT_TRUE(Reaches("run", 20)) << launch.Log();
  const std::vector<pid_t> programs = hosts_->Find("c_linear");
  const auto victim = std::ranges::find_if(programs, [](pid_t pid) {
    return Slurp(fmt::format("/proc/{}/environ", pid)).find("MUSTER_RANK=4") != std::string::npos;
  });
  ASSERT_NE(victim, programs.end());
  EXPECT_THAT(Slurp(fmt::format("/proc/{}/environ", *victim)), HasSubstr("MUSTER_SEED=1"));
  ::kill(*victim, SIGKILL);
  ASSERT_EQ(launch.Wait(200), 0) << launch.Log();
  EXPECT_THAT(launch.Log(), HasSubstr("Joined: rank 4"));
  EXPECT_THAT(Slurp(Path("run/worker-0.log")), HasSubstr("y = "));
  EXPECT_TRUE(NothingLeftAnywhere());
  EXPECT_EQ(Metrics("run").back()["weights_hash"], expected.hash());
}

// As mpirun starts them on a host without the server.
TEST_F(Ssh, WorkersOfALauncherShareARelay) {
  const Words server_words{BinPath("muster"),   "server",       Path("config.txtpb"),
                           "--run-dir",         Path("run"),    "--endpoint",
                           "tcp://10.98.0.1:*", "--token-file", TokenFile()};
  Process server(hosts_->Inside(server_words), Path("server.log"));
  std::string endpoint;
  ASSERT_TRUE(Eventually(20, [&] { return !(endpoint = Endpoint(server)).empty(); }));
  std::vector<std::unique_ptr<Process>> workers;
  for (const char* const rank : {"0", "1"}) {
    const std::string number = rank;
    workers.push_back(std::make_unique<Process>(
        hosts_->Inside({"ip", "netns", "exec", "a", "env", "OMPI_COMM_WORLD_RANK=" + number,
                        "OMPI_COMM_WORLD_LOCAL_RANK=" + number, "OMPI_COMM_WORLD_SIZE=2",
                        "OMPI_COMM_WORLD_LOCAL_SIZE=2", BinPath("muster"), "worker",
                        Path("run/config.txtpb"), "--endpoint", endpoint, "--token-file",
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

}  // namespace
}  // namespace muster::testing
