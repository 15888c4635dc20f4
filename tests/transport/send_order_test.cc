// What ZeroMQ is given when: few tensors at a time, the lowest layer first, words before all.
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
// How many chunks of 4 MiB may have left before a receiver reads: what the window, the sockets'
// buffers and libzmq's queues hold.
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
  EXPECT_EQ(calls, 1);  // there is room, as was asked for
  window->GiveBack(64 << 20);
  EXPECT_EQ(calls, 1);  // nobody asked
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

// One thread takes from a full window and another gives back at the same time. A thread that could
// not take must be called: otherwise it would sleep for ever.
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
    // The delay differs from round to round, so that all interleavings come up.
    for (volatile int spins = round % 256; spins > 0;) spins = spins - 1;
    const bool taken = window->Take(kBytes);
    while (given != round) std::this_thread::yield();
    if (taken) continue;
    ASSERT_TRUE(called) << "round " << round;
    ASSERT_TRUE(window->Take(kBytes));
  }
}

constexpr int kWord = -1;

// Chunks and a word, in the order in which they came; the chunks were sent in descending order, and
// the word after them.
void ExpectUrgentFirst(const std::vector<int>& came) {
  const auto at = [&](int what) { return std::ranges::find(came, what) - came.begin(); };
  EXPECT_LE(at(kWord), kUnderWay);
  EXPECT_LE(at(0), kUnderWay + 1);
  // All that waited.
  EXPECT_TRUE(std::is_sorted(came.begin() + kUnderWay + 1, came.end()));
}

TEST(SendOrder, AServersWordsOvertakeWeightsAndLowLayersHighOnes) {
  // Outlives the links, which send it without a copy.
  const std::vector<float> tensor(kChunkFloats, 1.5f);
  const auto server = ListenZmq("tcp://127.0.0.1:*", Options());
  const auto worker = ConnectZmq(server->endpoint(), Options());
  wire::WorkerMessage hello;
  hello.mutable_hello();
  ASSERT_TRUE(worker->Send(hello, {}));
  const auto deadline = steady_clock::now() + std::chrono::seconds(30);
  std::optional<FromWorker> came;
  while (!came && steady_clock::now() < deadline) came = server->Receive();
  ASSERT_TRUE(came);

  wire::ServerMessage message;
  for (size_t c = kChunks; c-- > 0;) {
    message.mutable_weights_chunk()->set_version(1);
    message.mutable_weights_chunk()->set_chunk(static_cast<uint32_t>(c));
    const OutgoingTensor outgoing{std::as_bytes(std::span(tensor)),
                                  UrgencyOf(message.weights_chunk())};
    ASSERT_EQ(server->Send(came->peer, message, outgoing), SendResult::kQueued);
  }
  message.mutable_stop();
  ASSERT_EQ(server->Send(came->peer, message, {}), SendResult::kQueued);

  std::vector<int> order;
  while (order.size() < kChunks + 1) {
    ASSERT_LT(steady_clock::now(), deadline) << order.size() << " messages came";
    EXPECT_FALSE(server->Receive());  // hands over what has room now
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
  const std::string token = testing::TestToken();
  const auto server = ListenZmq("tcp://127.0.0.1:*", Options());
  const auto deadline = steady_clock::now() + std::chrono::seconds(30);
  auto client = std::async(std::launch::async, [&] {
    ClientOptions options;
    options.endpoint = server->endpoint();
    options.token = token;
    options.transport = config::Cluster::TCP;
    options.link = Options();
    options.arena_floats = kArenaFloats;
    return std::make_unique<Client>(std::move(options));
  });
  std::optional<FromWorker> came;
  while (!came && steady_clock::now() < deadline) came = server->Receive();
  ASSERT_TRUE(came && came->message.has_hello());
  wire::ServerMessage message;
  message.mutable_address()->set_job(JobOf(token));
  wire::Welcome& welcome = *message.mutable_welcome();
  for (size_t c = 1; c <= kChunks; ++c) welcome.add_chunk_end(c * kChunkFloats);
  welcome.set_train_samples(1);
  welcome.set_global_batch(1);
  welcome.set_total_steps(1);
  welcome.set_slices(1);
  welcome.mutable_assignment()->add_subtree();
  welcome.set_arenas(1);
  welcome.set_tensor_type(wire::FP32);
  ASSERT_EQ(server->Send(came->peer, message, {}), SendResult::kQueued);

  const std::unique_ptr<Client> worker = client.get();
  for (size_t c = kChunks; c-- > 0;) worker->PushChunk(0, {}, c);
  worker->ReportLoss(0, {}, 0, 1, 1.0, 0);
  // Until the communication thread, which may be in the middle of it, has begun once more and
  // ended.
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
    ASSERT_LT(steady_clock::now(), deadline) << order.size() << " messages came";
    const auto event = server->Receive();
    if (!event || event->message.has_beat() || event->message.has_step_times()) continue;
    ASSERT_EQ(event->kind, FromWorker::Kind::kMessage);
    if (event->message.has_slice_loss()) {
      order.push_back(kWord);
      continue;
    }
    order.push_back(static_cast<int>(event->message.gradient_part().chunk()));
  }
  ExpectUrgentFirst(order);
}

// A worker that takes nothing is given up before what it is sent fills the server's memory.
TEST(SendOrder, AWorkerThatTakesNothingIsGivenUp) {
  constexpr int kMostWaiting = 30;
  // Outlives the links, which still send it when the test ends.
  const std::vector<float> tensor(kChunkFloats, 1.5f);
  LinkOptions options = Options();
  options.max_queued_messages = kMostWaiting;
  const auto server = ListenZmq("tcp://127.0.0.1:*", options);
  const auto worker = ConnectZmq(server->endpoint(), options);
  wire::WorkerMessage hello;
  hello.mutable_hello();
  ASSERT_TRUE(worker->Send(hello, {}));
  const auto deadline = steady_clock::now() + std::chrono::seconds(30);
  std::optional<FromWorker> came;
  while (!came && steady_clock::now() < deadline) came = server->Receive();
  ASSERT_TRUE(came);

  wire::ServerMessage message;
  message.mutable_weights_chunk()->set_version(1);
  int queued = 0;
  SendResult sent;
  while ((sent = server->Send(came->peer, message, {std::as_bytes(std::span(tensor)), {}})) ==
             SendResult::kQueued &&
         queued < 1000) {
    ++queued;
    (void)server->Receive();
  }
  EXPECT_EQ(sent, SendResult::kFull);
  EXPECT_GE(queued, kMostWaiting);
  EXPECT_LE(queued, kMostWaiting + kUnderWay);
}

}  // namespace
}  // namespace muster
