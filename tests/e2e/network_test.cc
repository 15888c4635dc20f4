// Server and workers on different hosts: network namespaces connected by veth pairs.
//
//            server      10.77.9.1 (an address of its own, reachable over both links)
//           ┌──────┐
//   10.77.1.1      10.77.2.1
//       │              │
//   10.77.1.2      10.77.2.2
//    worker 0       worker 1
#include <fcntl.h>
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "common/base/error.h"
#include "tests/e2e/hand_job.h"

namespace muster::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

bool Shell(const std::string& command) { return std::system((command + " 2>&1").c_str()) == 0; }

// A network namespace, held by a waiting process while the object lives.
class Host {
 public:
  Host() {
    int ready[2];
    if (::pipe2(ready, O_CLOEXEC) != 0) return;
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      const char made = ::unshare(CLONE_NEWNET) == 0 ? 'y' : 'n';
      (void)!::write(ready[1], &made, 1);
      for (;;) ::pause();
    }
    char made = 'n';
    (void)!::read(ready[0], &made, 1);
    ::close(ready[0]);
    ::close(ready[1]);
    made_ = made == 'y';
  }
  ~Host() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Host(const Host&) = delete;

  bool made() const { return made_; }
  pid_t pid() const { return pid_; }
  std::string network() const { return "/proc/" + std::to_string(pid_) + "/ns/net"; }
  bool Ip(const std::string& arguments) const {
    return Shell("nsenter --net=" + network() + " ip " + arguments);
  }

 private:
  pid_t pid_ = -1;
  bool made_ = false;
};

class Network : public HandJob {
 protected:
  void SetUp() override {
    if (!Shell("command -v ip nsenter >/dev/null")) GTEST_SKIP() << "needs ip and nsenter";
    for (Host* host : {&server_host_, &hosts_[0], &hosts_[1]}) {
      if (!host->made()) GTEST_SKIP() << "needs the right to create network namespaces (root)";
    }
    if (!server_host_.Ip("link set lo up") || !server_host_.Ip("addr add 10.77.9.1/32 dev lo")) {
      GTEST_SKIP() << "needs the right to set up network interfaces";
    }
    for (int i = 0; i < 2; ++i) {
      const std::string subnet = "10.77." + std::to_string(i + 1);
      const std::string link = "worker" + std::to_string(i);
      if (!server_host_.Ip("link add " + link + " type veth peer name net0 netns " +
                           std::to_string(hosts_[i].pid()))) {
        GTEST_SKIP() << "needs veth interfaces";
      }
      ASSERT_TRUE(server_host_.Ip("addr add " + subnet + ".1/24 dev " + link));
      ASSERT_TRUE(server_host_.Ip("link set " + link + " up"));
      ASSERT_TRUE(hosts_[i].Ip("link set lo up"));
      ASSERT_TRUE(hosts_[i].Ip("addr add " + subnet + ".2/24 dev net0"));
      ASSERT_TRUE(hosts_[i].Ip("link set net0 up"));
      ASSERT_TRUE(hosts_[i].Ip("route add 10.77.9.1 via " + subnet + ".1"));
    }
  }

  std::unique_ptr<Process> ServerOnItsHost(const Words& more) {
    Words words{"--token-file", TokenFile()};
    words.insert(words.end(), more.begin(), more.end());
    return Server(words, {.network = server_host_.network()});
  }
  std::unique_ptr<Process> WorkerOnItsHost(int rank, const std::string& endpoint) {
    return Worker(rank, endpoint, {}, {.network = hosts_[rank].network()});
  }

  Host server_host_, hosts_[2];
};

TEST_F(Network, TheSameBitsAsOnOneHost) {
  const auto server = ServerOnItsHost({"--endpoint", "tcp://10.77.9.1:7700"});
  EXPECT_EQ(Endpoint(*server), "tcp://10.77.9.1:7700");
  const auto first = WorkerOnItsHost(0, "tcp://10.77.9.1:7700");
  const auto second = WorkerOnItsHost(1, "tcp://10.77.9.1:7700");
  ExpectSuccess(first, second, server);
  EXPECT_THAT(server->Log(), HasSubstr("Connections are encrypted"));
  EXPECT_THAT(first->Log(), HasSubstr("over ZeroMQ"));
  EXPECT_EQ(Metrics("run").back()["weights_hash"], LaunchedHash());
}

// The server listens on all interfaces but announces one address. One worker is on another host and
// starts before the server. The other one is on the server's host and uses its shared memory,
// although it connects to a network address.
TEST_F(Network, WorkersHereAndThere) {
  const auto first = WorkerOnItsHost(0, "tcp://10.77.9.1:7700");
  const auto second = Worker(1, "tcp://10.77.9.1:7700", {}, {.network = server_host_.network()});
  std::this_thread::sleep_for(std::chrono::milliseconds(700));
  const auto server =
      ServerOnItsHost({"--endpoint", "tcp://10.77.9.1:7700", "--bind", "tcp://*:7700"});
  ExpectSuccess(first, second, server);
  EXPECT_THAT(server->Log(), HasSubstr("bound to tcp://*:7700"));
  EXPECT_THAT(first->Log(), HasSubstr("over ZeroMQ"));
  EXPECT_THAT(second->Log(), HasSubstr("over shared memory"));
  EXPECT_EQ(Metrics("run").back()["weights_hash"], LaunchedHash());
}

// By default the server only listens on this host.
TEST_F(Network, NobodyElseReachesALoopbackServer) {
  const auto server = ServerOnItsHost({"--endpoint", "tcp://127.0.0.1:7700"});
  (void)Endpoint(*server);
  const auto worker = Worker(0, "tcp://10.77.9.1:7700", {"--set", "deadlines.start_s=1"},
                             {.network = hosts_[0].network()});
  EXPECT_EQ(worker->Wait(20), Code(ExitCode::kDeadline)) << worker->Log();
}

TEST_F(Network, AWorkerBehindABrokenLinkIsNamedInTime) {
  const auto server =
      ServerOnItsHost({"--endpoint", "tcp://10.77.9.1:7700", "--epochs", "100000", "--set",
                       "evaluation.every_epochs=0", "--set", "deadlines.silence_s=3", "--set",
                       "cluster.on_lost_worker=ABORT"});
  (void)Endpoint(*server);
  const auto first = WorkerOnItsHost(0, "tcp://10.77.9.1:7700");
  const auto second = Worker(1, "tcp://10.77.9.1:7700", {"--set", "deadlines.silence_s=3"},
                             {.network = hosts_[1].network()});
  ASSERT_TRUE(Reaches("run", 3)) << server->Log();
  const auto cut = std::chrono::steady_clock::now();
  ASSERT_TRUE(server_host_.Ip("link set worker1 down"));
  EXPECT_EQ(server->Wait(20), Code(ExitCode::kDeadline)) << server->Log();
  const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - cut).count();
  EXPECT_GE(took, 2);      // the server must have noticed the silence, not something else
  EXPECT_LE(took, 3 + 5);  // silence_s plus the time to stop
  EXPECT_THAT(server->Log(), AllOf(HasSubstr("rank 1"), HasSubstr("silent for 3 s")));
  EXPECT_EQ(first->Wait(10), Code(ExitCode::kPeerFailed)) << first->Log();
  EXPECT_THAT(first->Log(), HasSubstr("rank 1"));
  // It notices either the server's silence or the end of its connection.
  EXPECT_THAT(second->Wait(15),
              ::testing::AnyOf(Code(ExitCode::kDeadline), Code(ExitCode::kPeerFailed)));
  EXPECT_THAT(second->Log(), HasSubstr("server"));
}

}  // namespace
}  // namespace muster::testing
