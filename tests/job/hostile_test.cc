// Invalid bytes: the server drops and counts them, and the result is unchanged.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <chrono>
#include <cmath>
#include <future>
#include <memory>
#include <optional>
#include <random>
#include <thread>
#include <zmq.hpp>

#include "common/config/job_size.h"
#include "common/link/protocol.h"
#include "common/transport/zmq/zmq_admission.h"
#include "common/transport/zmq/zmq_link.h"
#include "tests/job/crew.h"
#include "tests/job/test_job.h"

namespace muster::testing {
namespace {

using ::testing::HasSubstr;

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

// A peer over ZeroMQ that writes its messages by hand.
class HandPeer {
 public:
  HandPeer(const TestJob& job, uint32_t rank)
      : options_(job.OptionsFor(rank)), link_(ConnectZmq(job.endpoint(), options_.link)) {
    address_.set_job(JobOf(job.token()));
    address_.set_rank(rank);
  }
  void SayHello() {
    wire::WorkerMessage message;
    *message.mutable_hello() = options_.hello;
    message.mutable_hello()->set_token(TestToken());
    message.mutable_hello()->set_protocol_version(kProtocolVersion);
    message.mutable_hello()->set_rank(address_.rank());
    Send(message);
  }
  void Send(wire::WorkerMessage message) {
    *message.mutable_address() = address_;
    link_->Send(message, {});
  }
  // Waits for a message of this kind.
  template <typename Is>
  wire::ServerMessage Await(const Is& is) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (std::chrono::steady_clock::now() < deadline) {
      std::optional<FromServer> event = link_->Receive();
      if (event && is(event->message)) return std::move(event->message);
      if (!event) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ADD_FAILURE() << "it did not come";
    return {};
  }
  std::string AwaitRefusal() {
    return Await([](const auto& message) { return message.has_refused(); }).refused().reason();
  }

 private:
  const ClientOptions options_;
  wire::Address address_;
  std::unique_ptr<ClientLink> link_;
};

// If a connection sends Hello twice, the first one counts.
TEST(Hostile, AConnectionHasOneSeat) {
  TestJob job(SmallConfig(2, 3));
  {
    HandPeer peer(job, 0);
    peer.SayHello();
    peer.SayHello();
    EXPECT_EQ(peer.AwaitRefusal(), "its connection already has rank 0");
  }
  EXPECT_NE(job.FinishError(), "");
}

TEST(Hostile, AConnectionThatHasLostItsRankGetsNoOther) {
  const config::Config config = CrewConfig("", 2);
  TestJob job(config);
  job.test_samples = kCrewTestSamples;
  HandPeer peer(job, 0);
  peer.SayHello();
  wire::WorkerMessage failure;
  failure.mutable_failure()->set_message("once");
  peer.Send(failure);
  peer.SayHello();
  EXPECT_EQ(peer.AwaitRefusal(), "its connection has lost its rank; connect again");
  {
    Crew crew(job);
    crew.Add(0);
    crew.Add(1);
  }
  EXPECT_EQ(job.Finish().weights_hash, Undisturbed(config));
}

// Rank 0 has no slice. It says Goodbye when the only step is done and its blocks are not.
TEST(Hostile, AGoodbyeDuringTheLastEvaluationIsALoss) {
  config::Config config = SmallConfig(2, 1);
  config.mutable_run()->set_steps(1);
  config.mutable_evaluation()->set_batch(4);
  config.mutable_evaluation()->clear_skip_final();
  TestJob job(config);
  job.test_samples = kCrewTestSamples;
  HandPeer peer(job, 0);
  peer.SayHello();
  Crew crew(job);
  crew.Add(1);
  int left = peer.Await([](const auto& message) { return message.has_welcome(); })
                 .welcome()
                 .chunk_end_size();
  wire::WorkerMessage ready, goodbye;
  ready.mutable_ready();
  peer.Send(ready);
  (void)peer.Await([&](const wire::ServerMessage& message) {
    return message.has_weights_chunk() && message.weights_chunk().version() == 1 && --left == 0;
  });
  goodbye.mutable_goodbye();
  peer.Send(goodbye);
  ExitCode code = ExitCode::kOk;
  EXPECT_THAT(job.FinishError(&code), HasSubstr("it left before the end"));
  EXPECT_EQ(code, ExitCode::kPeerFailed);
}

// Only a program without learning_rate in its config may set the rate. Losses with one are dropped.
TEST(Hostile, AWorkerDoesNotSetTheLearningRateOfTheConfig) {
  const auto run = [](std::optional<double> rate) {
    TestJob job(SmallConfig(1, 2));
    const auto client = job.Join(0);
    const auto lie = [&](const Order& order) {
      if (!rate) return;
      const StepPlan& plan = client->plan();
      client->ReportLoss(order.version, order.parts.at(0), 0,
                         plan.Slice(plan.At(order.version), 0).size(), 1, 0,
                         {.scalars = {}, .learning_rate = rate, .weight = {}});
    };
    RunWorker(*client, {.gradient = Slope, .on_train = lie});
    return job.Finish();
  };
  const ServerResult honest = run({});
  for (const double rate : {0.5, -1.0, std::nan("")}) {
    const ServerResult result = run(rate);
    EXPECT_EQ(result.weights_hash, honest.weights_hash) << rate;
    EXPECT_GT(result.dropped_messages, honest.dropped_messages) << rate;
  }
}

}  // namespace
}  // namespace muster::testing
