// A peer that sends without end fills the memory of neither the server nor other workers.
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <thread>

#include "common/base/process.h"
#include "common/config/job_size.h"
#include "common/link/protocol.h"
#include "common/transport/zmq/zmq_link.h"
#include "tests/job/test_job.h"

namespace muster::testing {
namespace {

size_t Resident() { return static_cast<size_t>(ResidentBytes().value_or(0)); }

// Sanitizers delay freeing memory to detect later uses, which makes resident memory meaningless.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kResidentIsHeld = false;
#else
constexpr bool kResidentIsHeld = true;
#endif

// The server is busy while a worker sends endlessly. The server's memory is bounded, and the rest
// waits at the worker and arrives later.
TEST(Flood, AFloodWaitsAtItsSender) {
  if (!kResidentIsHeld) GTEST_SKIP() << "a sanitizer delays freeing memory";
  constexpr size_t kBytes = 1 << 20;
  constexpr int kMessages = 300, kWindow = 20;
  const LinkOptions options{.max_message_bytes = 2 << 20,
                            .max_queued_messages = kMessages + 10,
                            .max_received_messages = kWindow,
                            .token = TestToken()};
  const auto server = ListenZmq("tcp://127.0.0.1:*", options);
  const auto member = ConnectZmq(server->endpoint(), options);
  wire::WorkerMessage first;
  first.mutable_heartbeat();
  ASSERT_TRUE(member->Send(first, {}));
  const auto connected = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!server->Receive()) ASSERT_LT(std::chrono::steady_clock::now(), connected);
  const std::vector<float> tensor(kBytes / sizeof(float), 1.5f);
  const size_t before = Resident();
  for (int i = 0; i < kMessages; ++i) {  // sent in place: no copies on this side
    wire::WorkerMessage message;
    message.mutable_gradient_part()->set_step(i);
    ASSERT_TRUE(member->Send(message, std::as_bytes(std::span(tensor))));
  }
  // Waits until memory no longer changes.
  size_t held = 0, last = 1;
  for (int quiet = 0, looks = 0; quiet < 20; ++looks) {
    ASSERT_LT(looks, 400) << "the server's memory keeps changing";
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    held = Resident() - before;
    quiet = held == last ? quiet + 1 : 0;
    last = held;
  }
  EXPECT_GT(held, (kWindow / 2) * kBytes);  // the flood has arrived
  EXPECT_LT(held, (kWindow + 10) * kBytes) << "of " << kMessages * kBytes << " sent";
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  for (int i = 0; i < kMessages;) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "message " << i << " did not arrive";
    const std::optional<FromWorker> event = server->Receive();
    if (!event) continue;
    ASSERT_EQ(event->kind, FromWorker::Kind::kMessage);
    EXPECT_EQ(event->message.gradient_part().step(), i++);
    EXPECT_EQ(event->payload.bytes, kBytes);
  }
}

// A member sends its gradient many times, in messages that look valid: of a future step,
// repeatedly, or as large as a message may be.
TEST(Flood, AMembersFloodDoesNotFillTheServer) {
  if (!kResidentIsHeld) GTEST_SKIP() << "a sanitizer delays freeing memory";
  config::Config config = SmallConfig(1, 1);
  config.mutable_model()->mutable_layer(0)->mutable_dense()->set_units(200000);
  config.mutable_cluster()->set_chunk_bytes(1 << 20);
  TestJob job(config, "tcp");
  const LinkOptions options = job.OptionsFor(0).link;
  const auto link = ConnectZmq(job.endpoint(), options);
  wire::WorkerMessage message;
  message.mutable_address()->set_job(JobOf(job.token()));
  *message.mutable_hello() = job.OptionsFor(0).hello;
  message.mutable_hello()->set_token(job.token());
  message.mutable_hello()->set_protocol_version(kProtocolVersion);
  ASSERT_TRUE(link->Send(message, {}));
  message.mutable_ready();
  ASSERT_TRUE(link->Send(message, {}));
  bool training = false;
  uint64_t order = 0;
  for (int i = 0; i < 1000 && !training; ++i) {
    if (const auto event = link->Receive()) {
      training = event->message.has_train();
      order = event->message.train().order();
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  ASSERT_TRUE(training);

  const size_t model = job.graph().arena_floats() * sizeof(float);
  const std::vector<float> junk(options.max_message_bytes / sizeof(float) - (1 << 10), 2.5f);
  const std::vector<Chunk> chunks = CutChunks(job.graph().layout(), config.cluster());
  const size_t before = Resident();
  size_t sent = 0, peak = 0;
  const auto look = [&] { peak = std::max(peak, std::max(Resident(), before) - before); };
  const auto push = [&](int64_t step, size_t chunk, size_t floats) {
    wire::GradientPart& part = *message.mutable_gradient_part();
    part.set_step(step);
    part.set_chunk(static_cast<uint32_t>(chunk));
    part.mutable_subtree()->set_level(0);
    part.set_order(order);
    ASSERT_TRUE(link->Send(message, std::as_bytes(std::span(junk).first(floats))));
    sent += floats * sizeof(float);
    look();
  };
  for (int round = 0; round < 20; ++round) {
    for (size_t c = 0; c < chunks.size(); ++c) {
      push(0, c, chunks[c].floats());  // refused without its loss
      push(1, c, chunks[c].floats());
      push(0, c, junk.size());
    }
  }
  // Messages are read in order, so this one is read last.
  message.mutable_failure()->set_message("that was all");
  ASSERT_TRUE(link->Send(message, {}));
  auto error = std::async(std::launch::async, [&] { return job.FinishError(); });
  while (error.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready) look();
  EXPECT_NE(error.get().find("that was all"), std::string::npos);
  const size_t bound = model + (64 << 20) + 16 * options.max_message_bytes;
  EXPECT_GT(sent, 5 * bound);
  EXPECT_LT(peak, bound) << "of " << sent << " bytes sent";
}

}  // namespace
}  // namespace muster::testing
