// A worker's choice of link: shared memory with a server on its host, otherwise ZeroMQ.
#include "common/transport/transport.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <future>
#include <random>
#include <thread>
#include <vector>

#include "common/base/error.h"
#include "common/base/resource_limits.h"
#include "common/link/link.h"
#include "common/link/protocol.h"
#include "common/transport/local/local_address.h"
#include "common/transport/local/local_link.h"
#include "common/transport/zmq/zmq_link.h"
#include "tests/base/without_netlink.h"
#include "tests/job/raw_local_link.h"
#include "tests/transport/small_link.h"

namespace muster::testing {
namespace {

std::string UniqueIpcEndpoint() {
  return "ipc://@" + UniqueLocalEndpoint().substr(std::string("local://@").size());
}

// Limits the size of files that this process may create, including shared memory.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    IgnoreFileSizeSignal();
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{std::min(bytes, before_.rlim_max), before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  }
  ~FileSizeLimit() { ::setrlimit(RLIMIT_FSIZE, &before_); }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit before_{};
};

TEST(Transport, AutoUsesSharedMemory) {
  config::Config config = SmallConfig(2, 2);
  config.mutable_cluster()->set_transport(config::Cluster::AUTO);
  const auto gradient = [](int64_t, int64_t, size_t) { return 1.0f; };
  TestJob job(config);
  const auto client = Connect(job.endpoint(), JobOf(job.token()), config::Cluster::AUTO,
                              std::chrono::seconds(5), job.OptionsFor(0).link);
  EXPECT_TRUE(client->shares_memory()) << "not the local link";
  RunWorkers(job, {.gradient = gradient});
  EXPECT_EQ(job.Finish().steps, 3);
}

// Otherwise libzmq would abort.
TEST(Transport, WithoutNetlinkNobodyListensAtTcpAddressesAndIsTold) {
  const LinkOptions options = SmallLink();
  WithoutNetlink([&] {
    try {
      (void)ListenZmq("tcp://127.0.0.1:*", options);
      ADD_FAILURE() << "expected an error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kFailure);
      EXPECT_NE(std::string(error.what()).find("allow AF_NETLINK"), std::string::npos)
          << error.what();
    }
    EXPECT_NE(ListenZmq(UniqueIpcEndpoint(), options), nullptr);
  });
}

// Expects that a Hello from `client` reaches `server`.
::testing::AssertionResult Reaches(ClientLink& client, ServerLink& server) {
  wire::WorkerMessage hello;
  hello.mutable_hello();
  if (!client.Send(hello, {}) || !client.Deliver())
    return ::testing::AssertionFailure() << "not sent";
  std::optional<FromWorker> event;
  for (int i = 0; i < 500 && !event; ++i) {
    event = server.Receive();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  if (event && event->message.has_hello()) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "not received";
}

// If the server cannot share memory, its workers reconnect over ZeroMQ, with the same bits.
TEST(Transport, AHandOverThatFailsIsNoFailureOfTheJob) {
  config::Config config = SmallConfig(2, 4);
  config.mutable_cluster()->set_transport(config::Cluster::AUTO);
  struct Outcome {
    uint64_t hash = 0;
    std::string transport;
  };
  const auto run = [&](bool no_memory) {
    TestJob job(config);
    const FileSizeLimit limit(no_memory ? 1024 : RLIM_INFINITY);  // shared memory counts as a file
    auto other = std::async(std::launch::async, [&] {
      const auto client = job.Join(1);
      RunWorker(*client, {.gradient = Rough});
    });
    auto client = job.Join(0);
    Outcome outcome{.transport = client->link().transport()};
    RunWorker(*client, {.gradient = Rough});
    client.reset();
    other.get();
    outcome.hash = job.Finish().weights_hash;
    return outcome;
  };
  const Outcome usual = run(false);
  const Outcome without = run(true);
  EXPECT_EQ(usual.transport, "shared memory");
  EXPECT_EQ(without.transport, "ZeroMQ");
  EXPECT_EQ(without.hash, usual.hash);
}

TEST(Transport, AWorkerWhoseServerHasNoneUsesZeroMq) {
  const std::string endpoint = UniqueIpcEndpoint();
  const uint64_t job = std::random_device{}();
  auto client = std::async(std::launch::async, [&] {
    return Connect(endpoint, job, config::Cluster::AUTO, std::chrono::seconds(20), SmallLink());
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const auto server = Listen(endpoint, job, config::Cluster::IPC, SmallLink());
  const auto link = client.get();
  EXPECT_FALSE(link->shares_memory());
  EXPECT_TRUE(Reaches(*link, *server));
}

// Names are taken by a process that is not a server. Who has the token finds the next one; without
// any, there is ZeroMQ.
TEST(Transport, AServerWhoseNameIsTakenUsesAnother) {
  const std::string endpoint = UniqueIpcEndpoint();
  const uint64_t job = std::random_device{}();
  const std::vector<std::string> names = StandInsFor(LocalEndpoint(job), TestToken());
  std::vector<UniqueFd> holders;
  for (const std::string& name : names) {
    const LocalAddress address(name);
    holders.emplace_back(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::bind(holders.back().get(), address.get(), address.size), 0);
    const auto server = Listen(endpoint, job, config::Cluster::AUTO, SmallLink());
    EXPECT_EQ(server->endpoint(), endpoint);
    const auto client =
        Connect(endpoint, job, config::Cluster::AUTO, std::chrono::seconds(20), SmallLink());
    EXPECT_EQ(client->shares_memory(), holders.size() < names.size());
    EXPECT_TRUE(Reaches(*client, *server));
  }
  EXPECT_NE(names[1], StandInsFor(LocalEndpoint(job), "another token")[1]);
}

TEST(Transport, EachServerChoosesANewName) {
  for (const std::string scheme : {"ipc://@", "local://@"}) {
    const auto transport = scheme == "ipc://@" ? config::Cluster::IPC : config::Cluster::LOCAL;
    const auto first = Listen(scheme + "*", 1, transport, SmallLink());
    const auto second = Listen(scheme + "*", 1, transport, SmallLink());
    EXPECT_NE(first->endpoint(), second->endpoint());
    EXPECT_EQ(first->endpoint().size(), scheme.size() + std::string("muster-").size() + 32);
    const auto client =
        Connect(first->endpoint(), 1, transport, std::chrono::seconds(20), SmallLink());
    EXPECT_TRUE(Reaches(*client, *first));
  }
}

TEST(Transport, ASecondJobWithTheSameTokenIsRefused) {
  const uint64_t job = std::random_device{}();
  const auto listen = [&] {
    return Listen("tcp://127.0.0.1:*", job, config::Cluster::AUTO, SmallLink());
  };
  const auto first = listen();
  try {
    (void)listen();
    ADD_FAILURE() << "two servers with the same token started";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    EXPECT_NE(std::string(error.what()).find("same token"), std::string::npos) << error.what();
  }
}

// The kernel refuses keep-alive times above 9 hours, and libzmq would then drop the connection.
TEST(Transport, ADayOfSilenceMayBeAllowed) {
  LinkOptions options = SmallLink();
  options.silence_s = 86400;
  const auto server = ListenZmq("tcp://127.0.0.1:*", options);
  const auto client = ConnectZmq(server->endpoint(), options);
  EXPECT_TRUE(Reaches(*client, *server));
}

TEST(Transport, NobodyThereIsSaidInTime) {
  const std::string endpoint = UniqueIpcEndpoint();
  try {
    (void)Connect(endpoint, 1, config::Cluster::AUTO, std::chrono::milliseconds(20), SmallLink());
    ADD_FAILURE() << "connected without a server";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kDeadline);
    EXPECT_NE(std::string(error.what()).find(endpoint), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace muster::testing
