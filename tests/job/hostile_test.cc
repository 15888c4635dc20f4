// Invalid bytes: the server drops and counts them, and the result is unchanged.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <future>
#include <random>
#include <thread>
#include <zmq.hpp>

#include "common/config/job_size.h"
#include "common/link/protocol.h"
#include "common/transport/zmq/zmq_admission.h"
#include "common/transport/zmq/zmq_link.h"
#include "tests/job/test_job.h"

namespace muster::testing {
namespace {

float Slope(int64_t step, int64_t slice, size_t i) {
  return 0.01f * static_cast<float>(step + 1) / static_cast<float>(slice + 1) +
         static_cast<float>(i % 13);
}

uint64_t QuietHash() {
  TestJob job(SmallConfig(2, 3));
  RunWorkers(job, {.gradient = Slope});
  return job.Finish().weights_hash;
}

// A connection that bypasses the client library. It has the token, because otherwise no message
// would be read.
class RawPeer {
 public:
  explicit RawPeer(const std::string& endpoint) : socket_(context_, zmq::socket_type::dealer) {
    socket_.set(zmq::sockopt::linger, 200);
    PresentToken(socket_, {.token = TestToken()});
    socket_.set(zmq::sockopt::sndtimeo, 500);
    socket_.connect(endpoint);
  }
  void Send(const std::vector<std::string>& frames) {
    for (size_t i = 0; i < frames.size(); ++i) {
      (void)socket_.send(zmq::buffer(frames[i]),
                         i + 1 < frames.size() ? zmq::send_flags::sndmore : zmq::send_flags::none);
    }
  }

 private:
  zmq::context_t context_;
  zmq::socket_t socket_;
};

std::string RandomBytes(std::mt19937& random, size_t size) {
  std::string bytes(size, 0);
  for (char& c : bytes) c = static_cast<char>(random());
  return bytes;
}

TEST(Hostile, StrangersChangeNothing) {
  for (const std::string transport : {"ipc", "tcp"}) {
    TestJob job(SmallConfig(2, 3), transport);
    RawPeer stranger(job.endpoint());
    std::mt19937 random(11);
    const auto flood = [&] {
      for (int i = 0; i < 50; ++i) stranger.Send({RandomBytes(random, random() % 200)});
      for (int i = 0; i < 20; ++i) {
        stranger.Send({RandomBytes(random, random() % 50), RandomBytes(random, random() % 4000)});
      }
      stranger.Send({"a", "b", "c", "d"});
      stranger.Send({""});
      // Valid messages with the right job and rank, but from a peer that never joined.
      wire::WorkerMessage message;
      message.mutable_address()->set_job(JobOf(job.token()));
      message.mutable_address()->set_rank(0);
      message.mutable_gradient_part()->set_step(0);
      message.mutable_gradient_part()->set_chunk(0);
      stranger.Send({message.SerializeAsString(), std::string(1024, 'x')});
      message.mutable_failure()->set_message("I am rank 0 and I fail");
      stranger.Send({message.SerializeAsString()});
      message.mutable_hello()->set_token(std::string(1 << 20, 'f'));
      stranger.Send({message.SerializeAsString()});
    };
    flood();
    const WorkerBehaviour behaviour{.gradient = Slope, .before_step = [](int64_t) {
                                      std::this_thread::sleep_for(std::chrono::milliseconds(20));
                                    }};
    auto workers = std::async(std::launch::async, [&] { RunWorkers(job, behaviour); });
    flood();
    // A frame larger than any in the protocol ends the connection.
    RawPeer giant(job.endpoint());
    giant.Send({std::string(32 << 20, 'z')});
    workers.get();
    const ServerResult result = job.Finish();
    EXPECT_EQ(result.weights_hash, QuietHash()) << transport;
    EXPECT_GT(result.dropped_messages, 50u);
  }
}

// If a connection sends Hello twice, the first one counts.
TEST(Hostile, AConnectionHasOneSeat) {
  TestJob job(SmallConfig(2, 3));
  auto link = ConnectZmq(job.endpoint(), job.OptionsFor(0).link);
  wire::WorkerMessage hello;
  *hello.mutable_hello() = job.OptionsFor(0).hello;
  hello.mutable_hello()->set_token(job.token());
  hello.mutable_hello()->set_protocol_version(kProtocolVersion);
  link->Send(hello, {});  // any rank
  link->Send(hello, {});
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  std::string answer;
  while (answer.empty() && std::chrono::steady_clock::now() < deadline) {
    const std::optional<FromServer> event = link->Receive();
    if (event && event->message.has_refused()) answer = event->message.refused().reason();
    if (!event) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(answer, "its connection already has rank 0");
  link.reset();
  EXPECT_NE(job.FinishError(), "");
}

}  // namespace
}  // namespace muster::testing
