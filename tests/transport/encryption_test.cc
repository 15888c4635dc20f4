// Encrypted connections with keys from the token: which are accepted, and the errors for others.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <thread>
#include <zmq.hpp>

#include "common/link/tcp_address.h"
#include "common/transport/zmq/zmq_admission.h"
#include "common/transport/zmq/zmq_keys.h"
#include "common/transport/zmq/zmq_link.h"
#include "proto/config.pb.h"
#include "tests/job/test_job.h"
#include "tests/transport/wiretap.h"

namespace muster::testing {
namespace {

using std::chrono::steady_clock;
using ::testing::AllOf;
using ::testing::HasSubstr;

LinkOptions Options(bool encrypt, const std::string& token = TestToken()) {
  return {.max_message_bytes = 1 << 20,
          .max_server_message_bytes = 1 << 20,
          .max_queued_messages = 10,
          .max_received_messages = 10,
          .token = token,
          .encrypt = encrypt};
}

std::string Hex(std::span<const uint8_t> bytes) {
  std::string text;
  for (const uint8_t byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

// Never changes, because workers and servers of different builds must agree. Verified with
//   printf 'muster curve server' | openssl dgst -sha256 -hmac 0123456789abcdef0123456789abcdef
TEST(Keys, AreMadeOfTheToken) {
  const std::string token = "0123456789abcdef0123456789abcdef";
  const CurvePair server = ServerKeys(token), worker = WorkerKeys(token);
  EXPECT_EQ(Hex(server.secret_half),
            "823470c9834ff7bf94b3255d43184f57da4455fb88fcebd4f22a5dc42b60af01");
  EXPECT_EQ(Hex(worker.secret_half),
            "1a6b6989a1ccb2a4390f49a3aa4b6b1bf6706db3f15baf3a1bd65a29c22676d5");
  EXPECT_NE(server.public_half, worker.public_half);
  EXPECT_NE(ServerKeys("0123456789abcdef0123456789abcdee").secret_half, server.secret_half);
  CurvePair gone = server;
  Forget(gone);
  EXPECT_EQ(gone.secret_half, (std::array<uint8_t, 32>{}));
}

TEST(Encryption, IsTheDefaultButOnLoopback) {
  config::Cluster cluster;
  for (const char* here : {"tcp://127.0.0.1:7700", "tcp://[::1]:7700", "ipc://@x", "local://@x"}) {
    EXPECT_FALSE(IsEncrypted(cluster, here)) << here;
  }
  for (const char* there : {"tcp://10.0.0.5:7700", "tcp://*:7700", "tcp://0.0.0.0:*",
                            "tcp://[fd00::5]:7700", "tcp://no-such-host.invalid:7700"}) {
    EXPECT_TRUE(IsEncrypted(cluster, there)) << there;
  }
  // The address that workers connect to counts as well.
  const ListenAddress forwarded{.bind = "tcp://127.0.0.1:7700", .endpoint = "tcp://10.0.0.5:7700"};
  EXPECT_TRUE(IsEncrypted(cluster, forwarded));
  cluster.set_encryption(config::Cluster::NONE);
  EXPECT_FALSE(IsEncrypted(cluster, forwarded));
  cluster.set_encryption(config::Cluster::CURVE);
  EXPECT_TRUE(IsEncrypted(cluster, std::string("tcp://127.0.0.1:7700")));
  EXPECT_FALSE(IsEncrypted(cluster, std::string("ipc://@x")));
}

struct Refusal {
  std::string worker, server;  // the errors, or ""
};

// A worker that is refused: the errors of both sides, within a deadline. The server reports none if
// the worker disconnects first.
Refusal Refused(ServerLink& server, ClientLink& worker, bool server_says) {
  Refusal refusal;
  const auto until = steady_clock::now() + std::chrono::seconds(20);
  while ((refusal.worker.empty() || (server_says && refusal.server.empty())) &&
         steady_clock::now() < until) {
    if (const auto event = server.Receive()) {
      EXPECT_EQ(event->kind, FromWorker::Kind::kRefused);
      refusal.server = event->refused + ": " + event->why_refused;
    }
    try {
      if (refusal.worker.empty()) (void)worker.Receive();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kRefused);
      refusal.worker = error.what();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return refusal;
}

TEST(Encryption, AWrongTokenIsRefusedAndSaid) {
  const auto server = ListenZmq("tcp://127.0.0.1:*", Options(true));
  const auto worker =
      ConnectZmq(server->endpoint(), Options(true, "0123456789abcdef0123456789abcdee"));
  const Refusal refusal = Refused(*server, *worker, true);
  EXPECT_THAT(refusal.worker, AllOf(HasSubstr("refused this worker"), HasSubstr("token is wrong")));
  EXPECT_THAT(refusal.server, HasSubstr("its token differs"));
}

TEST(Encryption, WhoDoesNotEncryptIsToldSo) {
  const auto server = ListenZmq("tcp://127.0.0.1:*", Options(true));
  const auto worker = ConnectZmq(server->endpoint(), Options(false));
  const Refusal refusal = Refused(*server, *worker, false);
  EXPECT_THAT(refusal.worker, AllOf(HasSubstr("encrypted connections only"),
                                    HasSubstr("cluster.encryption=CURVE")));
}

TEST(Encryption, AServerThatDoesNotIsNamed) {
  const auto server = ListenZmq("tcp://127.0.0.1:*", Options(false));
  const auto worker = ConnectZmq(server->endpoint(), Options(true));
  const Refusal refusal = Refused(*server, *worker, false);
  EXPECT_THAT(refusal.worker,
              AllOf(HasSubstr("does not encrypt"), HasSubstr("cluster.encryption=NONE")));
}

// A peer that knows the server's public key but not the token has an unknown key.
TEST(Encryption, AnotherWorkersKeyIsRefused) {
  const auto server = ListenZmq("tcp://127.0.0.1:*", Options(true));
  zmq::context_t context;
  zmq::socket_t other(context, zmq::socket_type::dealer);
  other.set(zmq::sockopt::linger, 0);
  const CurvePair servers = ServerKeys(TestToken());
  const CurvePair mine = WorkerKeys("0123456789abcdef0123456789abcdee");
  other.set(zmq::sockopt::curve_serverkey, zmq::buffer(servers.public_half));
  other.set(zmq::sockopt::curve_publickey, zmq::buffer(mine.public_half));
  other.set(zmq::sockopt::curve_secretkey, zmq::buffer(mine.secret_half));
  other.connect(server->endpoint());
  (void)other.send(zmq::buffer("hello", 5), zmq::send_flags::dontwait);
  std::optional<FromWorker> event;
  const auto until = steady_clock::now() + std::chrono::seconds(20);
  while (!event && steady_clock::now() < until) event = server->Receive();
  ASSERT_TRUE(event);
  EXPECT_EQ(event->kind, FromWorker::Kind::kRefused);
}

// A tunnel accepts connections before its server is there, and closes them immediately. This does
// not mean that the token is wrong.
TEST(Encryption, WhoHangsUpWithoutAWordIsTriedAgain) {
  const auto server = ListenZmq("tcp://127.0.0.1:*", Options(true));
  UniqueFd tunnel(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  ASSERT_EQ(::listen(tunnel.get(), 16), 0);
  sockaddr_in address{};
  socklen_t size = sizeof address;
  ASSERT_EQ(::getsockname(tunnel.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  const auto worker =
      ConnectZmq(fmt::format("tcp://127.0.0.1:{}", ntohs(address.sin_port)), Options(true));
  const auto until = steady_clock::now() + std::chrono::seconds(20);
  for (int hung_up = 0; hung_up < 8;) {
    ASSERT_LT(steady_clock::now(), until);
    const UniqueFd one(::accept4(tunnel.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (one.valid()) ++hung_up;
    EXPECT_FALSE(worker->Receive());  // throws if it gives up
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

// The same run with and without encryption.
TEST(Encryption, ChangesNoBits) {
  uint64_t hashes[2];
  for (const bool encrypt : {false, true}) {
    config::Config config = SmallConfig(2, 3);
    config.mutable_cluster()->set_encryption(encrypt ? config::Cluster::CURVE
                                                     : config::Cluster::NONE);
    TestJob job(config, "tcp");
    RunWorkers(job, {.gradient = Rough});
    hashes[encrypt] = job.Finish().weights_hash;
  }
  EXPECT_EQ(hashes[0], hashes[1]);
}

}  // namespace
}  // namespace muster::testing
