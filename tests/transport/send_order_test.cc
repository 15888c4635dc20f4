// The order in which ZeroMQ gets data: few tensors at a time, lowest layer first, plain messages
// before tensors.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <stop_token>
#include <thread>

#include "common/link/outbox.h"
#include "common/link/protocol.h"
#include "common/link/wire_values.h"
#include "common/transport/zmq/zmq_link.h"
#include "tests/job/test_job.h"
#include "worker/client/client.h"

namespace muster {
namespace {

using std::chrono::steady_clock;

constexpr size_t kChunks = 32, kChunkFloats = 1 << 20, kArenaFloats = kChunks * kChunkFloats;
// The most 4 MiB chunks that leave before a receiver reads: the capacity of the window, the
// sockets' buffers and libzmq's queues.
constexpr int kUnderWay = 20;

LinkOptions Options() {
  return {.max_message_bytes = 8 << 20,
          .max_server_message_bytes = 8 << 20,
          .max_queued_messages = 1000,
          .max_received_messages = 1,
          .token = testing::TestToken()};
}

int calls = 0;
const Release kCount{[](void*) { ++calls; }, nullptr};

TEST(SendWindowTest, HasRoomForAFewMessagesAndManyBytes) {
  calls = 0;
  const auto window = std::make_shared<SendWindow>(kCount);
  for (size_t i = 0; i < SendWindow::kMessages; ++i) EXPECT_TRUE(window->Take(64 << 20));
  EXPECT_FALSE(window->Take(1));
  EXPECT_EQ(calls, 0);
  window->GiveBack(64 << 20);
  EXPECT_EQ(calls, 1);  // there is space, and it was requested
  window->GiveBack(64 << 20);
  EXPECT_EQ(calls, 1);  // not requested
  EXPECT_TRUE(window->Take(1));
  const auto small = std::make_shared<SendWindow>(kCount);
  size_t taken = 0;
  while (small->Take(1024)) ++taken;
  EXPECT_EQ(taken, SendWindow::kBytes / 1024);
}

TEST(SendWindowTest, IsGivenBackAfterWhatComesNext) {
  calls = 0;
  auto window = std::make_shared<SendWindow>(kCount);
  for (size_t i = 0; i < SendWindow::kMessages; ++i) EXPECT_TRUE(window->Take(8 << 20));
  EXPECT_FALSE(window->Take(8 << 20));
  const Release release = window->GivesBack(8 << 20, kCount);
  window.reset();  // its message may outlive a connection
  release.call(release.hint);
  EXPECT_EQ(calls, 2);
}

// One thread takes from a full window while another one returns space. A thread that could not take
// must be notified, or it would sleep forever.
TEST(SendWindowTest, NoWakeUpIsLost) {
  constexpr size_t kBytes = SendWindow::kBytes;
  constexpr int kRounds = 500'000;
  std::atomic<bool> called{false};
  const Release call{[](void* hint) { *static_cast<std::atomic<bool>*>(hint) = true; }, &called};
  const auto window = std::make_shared<SendWindow>(call);
  for (size_t i = 0; i < SendWindow::kMessages; ++i) ASSERT_TRUE(window->Take(kBytes));
  std::atomic<int> begun{0}, given{0};
  const std::jthread giver([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      if (given == begun) continue;
      window->GiveBack(kBytes);
      ++given;
    }
  });
  const auto end = steady_clock::now() + std::chrono::seconds(2);
  for (int round = 1; round <= kRounds && steady_clock::now() < end; ++round) {
    called = false;
    begun = round;
    // The delay varies between rounds to cover all interleavings.
    for (volatile int spins = round % 256; spins > 0;) spins = spins - 1;
    const bool taken = window->Take(kBytes);
    while (given != round) std::this_thread::yield();
    if (taken) continue;
    ASSERT_TRUE(called) << "round " << round;
    ASSERT_TRUE(window->Take(kBytes));
  }
}

wire::WorkerMessage Hello() {
  wire::WorkerMessage hello;
  hello.mutable_hello();
  return hello;
}

// The next message to the server, or nothing until the deadline.
std::optional<FromWorker> Next(ServerLink& server, steady_clock::time_point deadline) {
  std::optional<FromWorker> came;
  while (!came && steady_clock::now() < deadline) came = server.Receive();
  return came;
}

// A server and a worker that has sent Hello.
struct Pair {
  explicit Pair(const LinkOptions& options)
      : server(ListenZmq("tcp://127.0.0.1:*", options)),
        worker(ConnectZmq(server->endpoint(), options)) {
    EXPECT_TRUE(worker->Send(Hello(), {}));
    if (const auto came = Next(*server, deadline)) peer = came->peer;
    EXPECT_NE(peer, 0u) << "no Hello arrived";
  }
  const steady_clock::time_point deadline = steady_clock::now() + std::chrono::seconds(30);
  const std::unique_ptr<ServerLink> server;
  const std::unique_ptr<ClientLink> worker;
  PeerId peer = 0;
};

// Returns a client over ZeroMQ after its Welcome.
std::unique_ptr<Client> Connected(const ServerLink& server, const LinkOptions& link) {
  ClientOptions options;
  options.endpoint = server.endpoint();
  options.token = testing::TestToken();
  options.transport = config::Cluster::TCP;
  options.link = link;
  options.arena_floats = kArenaFloats;
  return std::make_unique<Client>(std::move(options));
}

wire::ServerMessage WelcomeOfOneSlice() {
  wire::ServerMessage message;
  message.mutable_address()->set_job(JobOf(testing::TestToken()));
  wire::Welcome& welcome = *message.mutable_welcome();
  for (size_t c = 1; c <= kChunks; ++c) welcome.add_chunk_end(c * kChunkFloats);
  welcome.set_train_samples(1);
  welcome.set_global_batch(1);
  welcome.set_total_steps(1);
  welcome.set_slices(1);
  welcome.add_subtree();
  welcome.set_buffers(1);
  welcome.set_tensor_type(wire::FP32);
  return message;
}

constexpr int kWord = -1;

// Checks the order of arrival of chunks and a plain message. The chunks were sent in descending
// order, and the message after them.
void ExpectUrgentFirst(const std::vector<int>& came) {
  const auto at = [&](int what) { return std::ranges::find(came, what) - came.begin(); };
  EXPECT_LE(at(kWord), kUnderWay);
  EXPECT_LE(at(0), kUnderWay + 1);
  // All chunks that had to wait.
  EXPECT_TRUE(std::is_sorted(came.begin() + kUnderWay + 1, came.end()));
}

TEST(SendOrder, AServersWordsOvertakeWeightsAndLowLayersHighOnes) {
  // Outlives the links, which send it without a copy.
  const std::vector<float> tensor(kChunkFloats, 1.5f);
  const auto [deadline, server, worker, peer] = Pair(Options());

  wire::ServerMessage message;
  for (size_t c = kChunks; c-- > 0;) {
    message.mutable_weights_chunk()->set_version(1);
    message.mutable_weights_chunk()->set_chunk(static_cast<uint32_t>(c));
    const OutgoingTensor outgoing{std::as_bytes(std::span(tensor)),
                                  UrgencyOf(message.weights_chunk())};
    ASSERT_EQ(server->Send(peer, message, outgoing), SendResult::kQueued);
  }
  message.mutable_stop();
  ASSERT_EQ(server->Send(peer, message, {}), SendResult::kQueued);

  std::vector<int> order;
  while (order.size() < kChunks + 1) {
    ASSERT_LT(steady_clock::now(), deadline) << order.size() << " messages arrived";
    EXPECT_FALSE(server->Receive());  // sends what now has space
    const auto event = worker->Receive();
    if (!event) continue;
    ASSERT_EQ(event->kind, FromServer::Kind::kMessage);
    if (event->message.has_stop()) {
      order.push_back(kWord);
      continue;
    }
    EXPECT_EQ(event->payload.bytes, kChunkFloats * sizeof(float));
    order.push_back(static_cast<int>(event->message.weights_chunk().chunk()));
  }
  ExpectUrgentFirst(order);
}

TEST(SendOrder, AWorkersWordsOvertakeGradientsAndLowLayersHighOnes) {
  const auto server = ListenZmq("tcp://127.0.0.1:*", Options());
  const auto deadline = steady_clock::now() + std::chrono::seconds(30);
  auto client = std::async(std::launch::async, [&] { return Connected(*server, Options()); });
  const auto came = Next(*server, deadline);
  ASSERT_TRUE(came && came->message.has_hello());
  ASSERT_EQ(server->Send(came->peer, WelcomeOfOneSlice(), {}), SendResult::kQueued);

  const std::unique_ptr<Client> worker = client.get();
  for (size_t c = kChunks; c-- > 0;) worker->PushChunk(0, {}, c);
  worker->ReportLoss(0, {}, 0, 1, 1.0, 0);
  // Waits until the communication thread has completed a whole round.
  for (int i = 0; i < 2; ++i) {
    const auto before = steady_clock::now();
    worker->ReportTimes({});
    while (worker->HandedOverAt() <= before) {
      ASSERT_LT(steady_clock::now(), deadline);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  std::vector<int> order;
  while (order.size() < kChunks + 1) {
    ASSERT_LT(steady_clock::now(), deadline) << order.size() << " messages arrived";
    const auto event = server->Receive();
    if (!event || event->message.has_heartbeat() || event->message.has_step_times()) continue;
    ASSERT_EQ(event->kind, FromWorker::Kind::kMessage);
    if (event->message.has_slice_loss()) {
      order.push_back(kWord);
      continue;
    }
    order.push_back(static_cast<int>(event->message.gradient_part().chunk()));
  }
  ExpectUrgentFirst(order);
}

// Only the newest two versions are queued for a worker on a slow network that is not waited for.
TEST(SendOrder, AWorkerThatIsBehindGetsTheNewestWeights) {
  constexpr int64_t kVersions = 20;
  constexpr uint32_t kSmallModel = 8;  // chunks
  // Outlives the links, which still send it when the test ends.
  const std::vector<float> tensor(kChunkFloats, 1.5f);
  const auto [deadline, server, worker, peer] = Pair(Options());

  wire::ServerMessage message;
  for (int64_t version = 0; version < kVersions; ++version) {
    for (uint32_t c = 0; c < kSmallModel; ++c) {
      message.mutable_weights_chunk()->set_version(version);
      message.mutable_weights_chunk()->set_chunk(c);
      const OutgoingTensor outgoing{std::as_bytes(std::span(tensor)),
                                    UrgencyOf(message.weights_chunk())};
      ASSERT_EQ(server->Send(peer, message, outgoing), SendResult::kQueued);
      (void)server->Receive();
    }
  }
  std::vector<std::pair<int64_t, uint32_t>> chunks, newest;
  while (chunks.empty() || chunks.back() != std::pair(kVersions - 1, kSmallModel - 1)) {
    ASSERT_LT(steady_clock::now(), deadline) << chunks.size() << " chunks arrived";
    EXPECT_FALSE(server->Receive());  // sends what now has space
    const auto event = worker->Receive();
    if (!event) continue;
    const wire::WeightsChunk& weights = event->message.weights_chunk();
    chunks.emplace_back(weights.version(), weights.chunk());
    if (weights.version() >= kVersions - 2) newest.push_back(chunks.back());
  }
  EXPECT_TRUE(std::ranges::is_sorted(chunks));
  EXPECT_EQ(newest.size(), 2 * kSmallModel);
  EXPECT_LE(chunks.size(), newest.size() + kUnderWay);
}

// A worker that reads nothing for long is dropped, and gets the reason when it reads.
TEST(SendOrder, LastWordsReachAWorkerThatTookNothing) {
  constexpr size_t kBytes = 256 << 10;
  LinkOptions options = Options();
  options.max_queued_messages = 2;
  options.max_waiting_bytes = 4 << 20;
  const auto [deadline, server, worker, peer] = Pair(options);

  wire::ServerMessage message;
  message.mutable_stop()->set_reason(std::string(kBytes, 'x'));
  size_t queued = 0;
  SendResult sent;
  while ((sent = server->Send(peer, message, {})) == SendResult::kQueued && queued < 1000) {
    ++queued;
  }
  EXPECT_EQ(sent, SendResult::kFull);
  EXPECT_GE(queued * kBytes, options.max_waiting_bytes - kBytes);
  message.mutable_stop()->set_reason("last words");
  EXPECT_EQ(server->Send(peer, message, {}), SendResult::kFull) << "but still queued";
  std::string heard;
  while (heard != "last words") {
    ASSERT_LT(steady_clock::now(), deadline);
    server->Deliver();
    if (const auto event = worker->Receive()) heard = event->message.stop().reason();
  }
}

// The queue is bounded for a peer that makes the server reply again and again but never reads.
TEST(SendOrder, WhatWaitsForAPeerThatReadsNothingHasABound) {
  constexpr size_t kBytes = 256 << 10;
  constexpr int kAnswers = 1000;
  LinkOptions options = Options();
  options.max_queued_messages = 2;
  options.max_waiting_bytes = 4 << 20;
  const auto [deadline, server, worker, peer] = Pair(options);
  wire::ServerMessage message;
  message.mutable_refused()->set_reason(std::string(kBytes, 'x'));
  for (int i = 0; i < kAnswers; ++i) (void)server->Send(peer, message, {});
  EXPECT_EQ(server->Send(peer, message, {}), SendResult::kFull);
  // Marks the end of the replies that arrive.
  int came = 0;
  for (auto quiet = steady_clock::now() + std::chrono::seconds(2); steady_clock::now() < quiet;) {
    ASSERT_LT(steady_clock::now(), deadline);
    (void)server->Receive();
    if (!worker->Receive()) continue;
    quiet = steady_clock::now() + std::chrono::seconds(2);
    ++came;
  }
  EXPECT_GE(came * kBytes, 2 * options.max_waiting_bytes - kBytes);
  EXPECT_LT(came, kAnswers / 2) << "sockets hold some in addition";
}

// A worker fails before the server has read its earlier messages.
TEST(SendOrder, AWorkersLastWordsReachAServerThatIsBehind) {
  LinkOptions options = Options();
  options.max_queued_messages = 2;
  const auto server = ListenZmq("tcp://127.0.0.1:*", options);
  const auto deadline = steady_clock::now() + std::chrono::seconds(30);
  auto client = std::async(std::launch::async, [&] { return Connected(*server, options); });
  const auto hello = Next(*server, deadline);
  ASSERT_TRUE(hello && hello->message.has_hello());
  ASSERT_EQ(server->Send(hello->peer, WelcomeOfOneSlice(), {}), SendResult::kQueued);
  const std::unique_ptr<Client> worker = client.get();
  wire::EvaluatedBlock block;
  block.add_image()->set_pixels(std::string(200 << 10, 'x'));
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(worker->ReportEvaluated(block));
  const auto failed =
      std::async(std::launch::async, [&] { worker->ReportFailure("last words", ExitCode::kData); });
  std::string heard;
  while (heard.empty()) {
    const auto event = Next(*server, deadline);
    ASSERT_TRUE(event) << "the last message did not arrive";
    ASSERT_NE(event->kind, FromWorker::Kind::kLost) << "the connection ended before it arrived";
    heard = event->message.failure().message();
  }
  EXPECT_EQ(heard, "last words");
}

}  // namespace
}  // namespace muster
