// Bytes that nobody should send: the server drops and counts them, and the result is the same.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <future>
#include <map>
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

// A connection of our own, past the client library. It knows the token, or would not get as far as
// a message.
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
      // Well-formed messages of someone who never joined, with the right job and rank.
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
    // A frame larger than any that the protocol has costs the stranger its connection.
    RawPeer giant(job.endpoint());
    giant.Send({std::string(32 << 20, 'z')});
    workers.get();
    const ServerResult result = job.Finish();
    EXPECT_EQ(result.weights_hash, QuietHash()) << transport;
    EXPECT_GT(result.dropped_messages, 50u);
  }
}

// A member that talks nonsense: repeated, late, early and out-of-range chunks, foreign subtrees,
// sizes that lie, losses of others' slices.
TEST(Hostile, NonsenseOfAMemberIsDropped) {
  TestJob job(SmallConfig(2, 3));
  auto other = std::async(std::launch::async, [&] {
    const auto client = job.Join(0);
    RunWorker(*client, {.gradient = Slope}, job.graph().arena_floats());
  });
  // Rank 1 through a link of our own, so that it can say anything.
  const auto link = ConnectZmq(job.endpoint(), job.OptionsFor(1).link);
  wire::WorkerMessage base;
  base.mutable_address()->set_job(JobOf(job.token()));
  base.mutable_address()->set_rank(1);
  wire::WorkerMessage hello = base;
  *hello.mutable_hello() = job.OptionsFor(1).hello;
  hello.mutable_hello()->set_token(job.token());
  hello.mutable_hello()->set_protocol_version(kProtocolVersion);
  hello.mutable_hello()->set_rank(1);
  link->Send(hello, {});
  link->Send(hello, {});  // twice

  const std::vector<Chunk> chunks = CutChunks(job.graph().layout(), job.config().cluster());
  const StepPlan plan{
      .train_samples = TestJob::kSamples, .global_batch = 16, .total_steps = 3, .slices = 3};
  const Range mine = EvenPart(3, 2, 1);
  const std::vector<TreeNode> parts = Decompose(mine, 3);
  std::vector<float> gradient(job.graph().arena_floats());
  std::vector<std::vector<float>> kept;  // what was sent stays as it is until the end
  uint64_t lease = 0;                    // of the first of them, in the step under way

  const auto push = [&](int64_t step, uint32_t chunk, const TreeNode& node,
                        std::span<const float> data, uint32_t rank = 1, uint32_t incarnation = 0,
                        int other_lease = 0, uint32_t other_arena = 0) {
    wire::WorkerMessage message = base;
    const auto part = static_cast<uint32_t>((std::ranges::find(parts, node) - parts.begin()) %
                                            static_cast<int64_t>(parts.size()));
    message.mutable_gradient_part()->set_lease(lease + part + static_cast<uint64_t>(other_lease));
    message.mutable_gradient_part()->set_arena(part + other_arena);
    message.mutable_address()->set_rank(rank);
    message.mutable_address()->set_incarnation(incarnation);
    message.mutable_gradient_part()->set_step(step);
    message.mutable_gradient_part()->set_chunk(chunk);
    message.mutable_gradient_part()->mutable_subtree()->set_level(node.level);
    message.mutable_gradient_part()->mutable_subtree()->set_index(node.index);
    link->Send(message, std::as_bytes(std::span(data)));
  };
  const auto train = [&](int64_t step) {
    const auto bad_loss = [&](int64_t s, uint32_t slice, int64_t samples) {
      wire::WorkerMessage message = base;
      message.mutable_slice_loss()->set_step(s);
      message.mutable_slice_loss()->set_slice(slice);
      message.mutable_slice_loss()->set_samples(samples);
      message.mutable_slice_loss()->set_loss(1);
      message.mutable_slice_loss()->set_lease(
          lease + (slice == static_cast<uint32_t>(mine.begin) + 1 ? 1 : 0));
      link->Send(message, {});
    };
    bad_loss(step, 0, plan.Slice(plan.At(step), 0).size());  // not its slice
    bad_loss(step, 77, 5);
    bad_loss(step + 1, 2, 5);
    bad_loss(step, static_cast<uint32_t>(mine.begin), 99);  // wrong size
    for (int64_t s = mine.begin; s < mine.end; ++s) {
      bad_loss(step, static_cast<uint32_t>(s), plan.Slice(plan.At(step), s).size());
      bad_loss(step, static_cast<uint32_t>(s), plan.Slice(plan.At(step), s).size());  // again
    }
    std::vector<float> garbage(1 << 12, 666.0f);
    kept.push_back(garbage);
    const std::span<const float> junk = kept.back();
    push(step, 0, parts[0], junk.first(chunks[0].floats() + 1));
    push(step, 0, parts[0], junk.first(chunks[0].floats() - 1));
    push(step, 0, parts[0], {});
    push(step, 1000000, parts[0], junk.first(16));
    push(step, 0, {0, 0}, junk.first(chunks[0].floats()));  // rank 0's slice
    push(step, 0, {63, 4000000000u}, junk.first(chunks[0].floats()));
    push(step - 1, 0, parts[0], junk.first(chunks[0].floats()));
    push(step + 1, 0, parts[0], junk.first(chunks[0].floats()));
    push(int64_t{1} << 62, 0, parts[0], junk.first(chunks[0].floats()));
    push(step, 0, parts[0], junk.first(chunks[0].floats()), 0);     // another rank
    push(step, 0, parts[0], junk.first(chunks[0].floats()), 1, 5);  // another incarnation
    for (const int other : {-1, 1, 1000000}) {                      // others' leases, and none
      push(step, 0, parts[0], junk.first(chunks[0].floats()), 1, 0, other);
    }
    push(step, 0, parts[0], junk.first(chunks[0].floats()), 1, 0, 0, 1);  // another arena
    for (const TreeNode& node : parts) {
      for (size_t i = 0; i < gradient.size(); ++i) {
        bool any;
        gradient[i] = TreeSumOf([&](int64_t s) { return Slope(step, s, i); }, node, 3,
                                [](int64_t) { return false; }, &any);
      }
      kept.push_back(gradient);
      const std::span<const float> good = kept.back();
      for (size_t c = 0; c < chunks.size(); ++c) {
        push(step, static_cast<uint32_t>(c), node,
             good.subspan(chunks[c].begin, chunks[c].floats()));
        push(step, static_cast<uint32_t>(c), node,
             junk.first(chunks[c].floats()));  // repeated, other bytes
      }
    }
  };
  // The order for a step comes ahead of its weights; a step begins when it has both.
  int64_t ordered = -1, trained = -1;
  uint64_t next_lease = 0;
  std::map<int64_t, size_t> arrived;
  bool running = true;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (running && std::chrono::steady_clock::now() < deadline) {
    const std::optional<FromServer> event = link->Receive();
    if (!event) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      continue;
    }
    const wire::ServerMessage& message = event->message;
    if (message.has_welcome()) {
      wire::WorkerMessage ready = base;
      ready.mutable_ready();
      link->Send(ready, {});
    } else if (message.has_train()) {
      ordered = message.train().step();
      next_lease = message.train().lease();
    } else if (message.has_weights_chunk()) {
      ++arrived[message.weights_chunk().version()];
    } else if (message.has_stop() || event->kind == FromServer::Kind::kLost) {
      EXPECT_TRUE(message.stop().completed()) << message.stop().reason();
      wire::WorkerMessage bye = base;
      bye.mutable_goodbye();
      link->Send(bye, {});
      running = false;
    }
    if (ordered > trained && arrived[ordered] == chunks.size()) {
      trained = ordered;
      lease = next_lease;
      train(trained);
    }
  }
  other.get();
  const ServerResult result = job.Finish();
  EXPECT_EQ(result.weights_hash, QuietHash());
  EXPECT_GE(result.dropped_messages, 3 * 19u);
}

// One that says Hello again, and whose first one counts.
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
  EXPECT_EQ(answer, "its connection has the seat of rank 0 already");
  link.reset();
  EXPECT_NE(job.FinishError(), "");
}

}  // namespace
}  // namespace muster::testing
