// A worker's client whose server sends correct, changed, reordered or invented messages. The client
// ends with an Error or by Stop. Until then every order that it returns can be executed: its
// slices, gradient buffers, chunks, versions and blocks exist.
#include "worker/client/client.h"

#include <poll.h>

#include "common/link/protocol.h"
#include "common/link/wire_values.h"
#include "tests/fuzz/fuzz.h"
#include "tests/job/test_job.h"

namespace muster::fuzz {
namespace fuzz_client {

constexpr size_t kArena = 64;
constexpr uint64_t kChunks[] = {16, 48, 64};
constexpr uint32_t kSlices = 3;

wire::ServerMessage BookWelcome() {
  wire::ServerMessage message;
  wire::Welcome& welcome = *message.mutable_welcome();
  welcome.set_workers(2);
  for (const uint64_t end : kChunks) welcome.add_chunk_end(end);
  welcome.set_train_samples(40);
  welcome.set_global_batch(16);
  welcome.set_total_steps(3);
  welcome.set_slices(kSlices);
  *welcome.add_subtree() = SubtreeOf({1, 0});
  *welcome.add_subtree() = SubtreeOf({0, 2});
  welcome.set_buffers(kSlices + 1);
  return message;
}

// Builds the server's messages from the input. The connection ends with it.
class ScriptLink : public ClientLink {
 public:
  explicit ScriptLink(Input input) : input_(input) {}

  const char* transport() const override { return "a script"; }
  bool shares_memory() const override { return false; }
  bool any_thread() const override { return true; }  // the waiting thread receives
  int fd() const override { return -1; }
  bool Pending() override { return true; }
  bool Send(const wire::WorkerMessage&, std::span<const std::byte> tensor,
            Release release) override {
    for (const std::byte byte : tensor)
      sum_ = static_cast<uint8_t>(sum_ ^ std::to_integer<int>(byte));
    if (release.call != nullptr) release.call(release.hint);
    return true;
  }
  void Flush(std::chrono::milliseconds) override {}

  std::optional<FromServer> Receive() override {
    if (weights_left_ > 0) return Weights();
    if (input_.empty())
      return FromServer{.kind = FromServer::Kind::kLost, .message = {}, .payload = {}};
    const uint8_t byte = input_.Byte();
    wire::ServerMessage message = BookMessage(byte % 16);
    if (byte % 16 == 15)
      return FromServer{.kind = FromServer::Kind::kMalformed, .message = {}, .payload = {}};
    message.mutable_address()->set_job(JobOf(testing::TestToken()));
    message.mutable_address()->set_incarnation(incarnation_);
    size_t floats = FloatsOf(message);
    if ((byte & 16) != 0) (void)message.MergeFromString(input_.Piece());
    if ((byte & 32) != 0) floats = input_.Byte();
    if (message.has_reset() && message.address().incarnation() == incarnation_) {
      incarnation_ = message.reset().incarnation();
    }
    return With(std::move(message), floats);
  }

 private:
  wire::ServerMessage BookMessage(int what) {
    wire::ServerMessage message;
    uint8_t how = 0;
    switch (what) {
      case 0:
        return BookWelcome();
      case 1:
        message.mutable_activate()->set_version(version_ = input_.Byte() % 3);
        break;
      case 2:
      case 3:
        // Sends all of them in order.
        weights_left_ = std::size(kChunks);
        message.mutable_heartbeat();
        break;
      case 4:
        message.mutable_weights_chunk()->set_version(version_);
        message.mutable_weights_chunk()->set_chunk(input_.Byte() % 4);
        message.mutable_weights_chunk()->set_average(true);
        break;
      case 5:
      case 6:
        message.mutable_train()->set_step(version_ - 1);
        message.mutable_train()->set_samples(16);
        message.mutable_train()->set_order(++order_);
        *message.mutable_train()->add_subtree() = SubtreeOf({1, 0});
        *message.mutable_train()->add_subtree() = SubtreeOf({0, 2});
        break;
      case 7:
        message.mutable_train()->set_step(version_ - 1);
        message.mutable_train()->set_samples(16);
        message.mutable_train()->set_order(++order_);
        message.mutable_train()->set_buffer(3);
        message.mutable_train()->add_chunk(1);
        message.mutable_train()->set_urgent(true);
        *message.mutable_train()->add_subtree() = SubtreeOf({0, 1});
        break;
      case 8:
        message.mutable_evaluate()->set_version(version_ - 1);
        message.mutable_evaluate()->set_block_size(10);
        how = input_.Byte();
        message.mutable_evaluate()->set_block_end(how % 4);
        message.mutable_evaluate()->set_set(how / 4 % 2 == 0 ? wire::TEST : wire::VALIDATION);
        break;
      case 9:
        message.mutable_reset()->set_incarnation(incarnation_ + 1);
        break;
      case 10:
        message.mutable_train()->set_step(version_ - 1);  // another part of a step
        message.mutable_train()->set_samples(16);
        message.mutable_train()->set_order(++order_);
        *message.mutable_train()->add_subtree() = SubtreeOf({1, 0});
        break;
      case 11:
        message.mutable_stop()->set_completed(input_.Byte() % 2 == 0);
        break;
      case 12:
        message.mutable_refused()->set_reason("x");
        break;
      default:
        message.mutable_heartbeat();
    }
    return message;
  }

  FromServer Weights() {
    wire::ServerMessage message;
    message.mutable_address()->set_job(JobOf(testing::TestToken()));
    message.mutable_address()->set_incarnation(incarnation_);
    message.mutable_weights_chunk()->set_version(version_);
    message.mutable_weights_chunk()->set_chunk(
        static_cast<uint32_t>(std::size(kChunks) - weights_left_));
    if (--weights_left_ == 0) ++version_;
    const size_t floats = FloatsOf(message);
    return With(std::move(message), floats);
  }

  static size_t FloatsOf(const wire::ServerMessage& message) {
    const uint32_t chunk = message.weights_chunk().chunk();
    if (!message.has_weights_chunk() || chunk >= std::size(kChunks)) return 0;
    return kChunks[chunk] - (chunk == 0 ? 0 : kChunks[chunk - 1]);
  }

  static FromServer With(wire::ServerMessage message, size_t floats) {
    const auto values = std::make_shared<std::vector<float>>(floats, 0.5f);
    return {.kind = FromServer::Kind::kMessage,
            .message = std::move(message),
            .payload = {.data = values->data(), .bytes = floats * sizeof(float), .owner = values}};
  }

  Input input_;
  int64_t version_ = 0;
  uint32_t incarnation_ = 0;
  uint64_t order_ = 0;
  size_t weights_left_ = 0;
  uint8_t sum_ = 0;
};

void CheckOrder(const Client& client, const Order& order) {
  const int64_t slices = client.plan().slices;
  Require(order.samples > 0, "a training order without samples");
  for (const OrderPart& part : order.parts) {
    Require(part.node.level <= Root(slices).level && !Covers(part.node, slices).empty(),
            "an order for unknown slices");
  }
  for (const uint32_t chunk : order.chunks) {
    Require(chunk < client.chunks().size(), "an order for an unknown chunk");
  }
}

void Compute(Client& client, const Order& order) {
  CheckOrder(client, order);
  for (size_t c = 0; c < client.chunks().size(); ++c) {
    if (!client.AwaitChunk(order.version, c, Client::Wait::kForUrgent)) return;
  }
  const StepPlan& plan = client.plan();
  for (const OrderPart& part : order.parts) {
    const Range slices = Covers(part.node, plan.slices);
    for (int64_t s = slices.begin; s < std::min(slices.end, slices.begin + 10); ++s) {
      const int64_t samples = plan.Slice(plan.At(order.version), s).size();
      Require(samples >= 0, "a slice with a negative number of samples");
      client.ReportLoss(order.version, part, s, samples, 1, 0);
    }
    const std::span<float> gradient = client.GradientBuffer(part.buffer);
    Require(gradient.size() == kArena, "a gradient buffer of the wrong size");
    std::ranges::fill(gradient, client.Weights(order.version)[kArena - 1]);
    for (size_t c = 0; c < client.chunks().size(); ++c) client.PushChunk(order.version, part, c);
  }
}

void Evaluate(Client& client, const Order& order) {
  Require(order.version >= 0 && order.block_size > 0, "an evaluation without blocks");
  Require(0 <= order.blocks.begin && order.blocks.begin <= order.blocks.end,
          "an evaluation with a negative number of blocks");
  const auto of = order.average ? Client::Of::kAverage : Client::Of::kWeights;
  for (size_t c = 0; c < client.chunks().size(); ++c) {
    if (!client.AwaitChunk(order.version, c, Client::Wait::kForUrgent, of)) return;
  }
  const std::span<const float> weights =
      order.average ? client.Average() : client.Weights(order.version);
  Require(weights.size() == kArena && weights[kArena - 1] == 0.5f, "weights are missing");
}

void Work(Client& client) {
  client.ReportReady();
  for (;;) {
    const Order order = client.NextOrder();
    switch (order.kind) {
      case Order::Kind::kStop:
        return;
      case Order::Kind::kReset:
        client.ReportReady();
        break;
      case Order::Kind::kEvaluate:
        Evaluate(client, order);
        break;
      default:
        Compute(client, order);
    }
  }
}

}  // namespace fuzz_client
}  // namespace muster::fuzz

FUZZ_TARGET(client) {
  using namespace muster;
  fuzz::SilenceLogs();
  ClientOptions options;
  options.token = testing::TestToken();
  options.arena_floats = fuzz::fuzz_client::kArena;
  options.link.share_memory = false;
  options.connect = [&](const LinkOptions&) {
    return std::make_unique<fuzz::fuzz_client::ScriptLink>(fuzz::Input(data, size));
  };
  fuzz::OrError("", [&] {
    Client client(options);
    fuzz::fuzz_client::Work(client);
  });
  return 0;
}
