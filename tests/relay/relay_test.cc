// A relay adds only what its workers may send. The server cannot check that, because it sees one
// connection for all of them.
#include "worker/relay/relay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "common/base/error.h"
#include "common/base/log.h"
#include "common/link/wire_values.h"

namespace muster {
namespace relay_test {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// What the relay hears, in this order. Then its connection to the server ends.
using Script = std::deque<std::variant<FromWorker, wire::ServerMessage>>;

template <typename Event>
std::optional<Event> Next(Script& script) {
  if (script.empty() || !std::holds_alternative<Event>(script.front())) return std::nullopt;
  Event event = std::get<Event>(std::move(script.front()));
  script.pop_front();
  return event;
}

class Below : public ServerLink {
 public:
  Below(Script& script, bool one_relay) : script_(script), one_relay_(one_relay) {}
  PeerId ConnectionOf(PeerId peer) const override { return one_relay_ ? 99 : peer; }
  std::string endpoint() const override { return "scripted://"; }
  int fd() const override { return -1; }
  bool Pending() override { return true; }
  std::optional<FromWorker> Receive() override { return Next<FromWorker>(script_); }
  SendResult Send(PeerId, const wire::ServerMessage&, const OutgoingTensor&) override {
    return SendResult::kQueued;
  }

 private:
  Script& script_;
  const bool one_relay_;
};

class Above : public ClientLink {
 public:
  Above(Script& script, std::vector<std::string>& sent) : script_(script), sent_(sent) {}
  const char* transport() const override { return "scripted"; }
  bool shares_memory() const override { return false; }
  bool any_thread() const override { return false; }
  int fd() const override { return -1; }
  bool Pending() override { return true; }
  std::optional<FromServer> Receive() override {
    if (script_.empty()) return FromServer{FromServer::Kind::kLost, {}, {}};
    auto message = Next<wire::ServerMessage>(script_);
    if (!message) return std::nullopt;
    return FromServer{FromServer::Kind::kMessage, std::move(*message), {}};
  }
  // Notes the ranks of a gradient or sum.
  bool Send(const wire::WorkerMessage& message, std::span<const std::byte>,
            Release release) override {
    if (message.has_gradient_part()) {
      std::string ranks;
      for (const wire::AddedPart& part : message.gradient_part().added()) {
        ranks += (ranks.empty() ? "" : " + ") + std::to_string(part.rank());
      }
      sent_.push_back(ranks.empty() ? std::to_string(message.address().rank()) : ranks);
    }
    if (release.call != nullptr) release.call(release.hint);
    return true;
  }
  void Flush(std::chrono::milliseconds) override {}

 private:
  Script& script_;
  std::vector<std::string>& sent_;
};

// Ranks 0 and 1 have half of four slices each. Their numbers here are 10 and 11.
constexpr TreeNode kLeft{1, 0}, kRight{1, 1}, kWhole{2, 0};
constexpr size_t kFloats = 4;  // of the only chunk

wire::Address AddressOf(uint32_t rank) {
  wire::Address address;
  address.set_job(77);
  address.set_rank(rank);
  address.set_incarnation(5);
  return address;
}

FromWorker From(uint32_t rank) {
  FromWorker event{
      .kind = FromWorker::Kind::kMessage, .peer = 10 + rank, .message = {}, .payload = {}};
  *event.message.mutable_address() = AddressOf(rank);
  return event;
}

wire::ServerMessage To(uint32_t rank) {
  wire::ServerMessage message;
  *message.mutable_address() = AddressOf(rank);
  message.set_via(10 + rank);
  return message;
}

FromWorker Gradient(uint32_t rank) {
  FromWorker event = From(rank);
  wire::GradientPart& part = *event.message.mutable_gradient_part();
  part.set_order(rank);
  *part.mutable_subtree() = SubtreeOf(rank == 0 ? kLeft : kRight);
  const auto values = std::make_shared<std::vector<float>>(kFloats, 1.0F);
  event.payload = {values->data(), kFloats * sizeof(float), values};
  return event;
}

FromWorker SumBy(uint32_t sender, const std::vector<uint32_t>& ranks) {
  FromWorker event = Gradient(sender);
  wire::GradientPart& sum = *event.message.mutable_gradient_part();
  *sum.mutable_subtree() = SubtreeOf(kWhole);
  for (const uint32_t rank : ranks) {
    const wire::GradientPart part = Gradient(rank).message.gradient_part();
    wire::AddedPart& added = *sum.add_added();
    added.set_rank(rank);
    added.set_order(part.order());
    *added.mutable_subtree() = part.subtree();
  }
  return event;
}

// Returns what reaches the server of these gradients, after both workers have got their orders.
// `one_relay`: they are behind another relay.
std::vector<std::string> Sent(const std::vector<FromWorker>& gradients, bool one_relay = false) {
  SetLogLevel(LogLevel::kError);
  Script script;
  for (const uint32_t rank : {0, 1}) {
    FromWorker hello = From(rank);
    hello.message.mutable_hello();
    script.emplace_back(std::move(hello));
  }
  for (const uint32_t rank : {0, 1}) {
    wire::ServerMessage message = To(rank);
    wire::Welcome& welcome = *message.mutable_welcome();
    welcome.add_chunk_end(kFloats);
    welcome.set_train_samples(80);
    welcome.set_global_batch(8);
    welcome.set_total_steps(10);
    welcome.set_slices(4);
    script.emplace_back(std::move(message));
  }
  for (const uint32_t rank : {0, 1}) {
    wire::ServerMessage message = To(rank);
    wire::Train& train = *message.mutable_train();
    train.set_order(rank);
    *train.add_subtree() = SubtreeOf(rank == 0 ? kLeft : kRight);
    script.emplace_back(std::move(message));
  }
  for (const FromWorker& gradient : gradients) script.emplace_back(gradient);
  std::vector<std::string> sent;
  Relay relay(std::make_unique<Below>(script, one_relay), std::make_unique<Above>(script, sent),
              {.without_workers = std::chrono::hours(1), .silence = std::chrono::hours(1)});
  EXPECT_THROW(relay.Run(), Error);
  EXPECT_TRUE(script.empty());
  return sent;
}

TEST(RelayTest, AddsWhatItsWorkersSend) {
  EXPECT_THAT(Sent({Gradient(1)}), IsEmpty());
  EXPECT_THAT(Sent({Gradient(1), Gradient(0)}), ElementsAre("0 + 1"));
}

TEST(RelayTest, AWorkerSpeaksOnlyForItself) {
  using Message = wire::WorkerMessage;
  const std::vector<std::function<void(Message&)>> lies{
      [](Message& message) { message.mutable_address()->set_rank(1); },
      [](Message& message) { message.mutable_address()->set_job(78); },
      [](Message& message) { message.mutable_address()->set_incarnation(4); },
      [](Message& message) {
        *message.mutable_gradient_part() = SumBy(0, {0, 1}).message.gradient_part();
      },
      [](Message& message) {
        *message.mutable_gradient_part() = SumBy(0, {1, 0}).message.gradient_part();
      },
      [](Message& message) { message.mutable_gradient_part()->set_empty(true); },
      [](Message& message) { message.mutable_gradient_part()->set_in_gpu(true); },
      [](Message& message) { message.mutable_gradient_part()->set_chunk(1); },
      [](Message& message) { message.mutable_gradient_part()->set_step(10); }};
  for (size_t i = 0; i < lies.size(); ++i) {
    FromWorker lie = Gradient(0);
    lies[i](lie.message);
    EXPECT_THAT(Sent({Gradient(1), lie, Gradient(0)}), ElementsAre("0 + 1")) << i;
    if (!lie.message.gradient_part().empty()) continue;
    lie.payload = {};  // and so does one that fits the mark
    EXPECT_THAT(Sent({Gradient(1), lie, Gradient(0)}), ElementsAre("0 + 1")) << i;
  }
}

TEST(RelayTest, AGradientHasTheSizeOfItsChunk) {
  for (const size_t bytes : {size_t{0}, sizeof(float), 2 * kFloats * sizeof(float)}) {
    FromWorker other = Gradient(0);
    other.payload.bytes = bytes;
    EXPECT_THAT(Sent({other, Gradient(1), Gradient(0)}), ElementsAre("0 + 1")) << bytes;
  }
}

TEST(RelayTest, AnotherRelaySpeaksForItsWorkers) {
  EXPECT_THAT(Sent({SumBy(0, {0, 1})}, /*one_relay=*/true), ElementsAre("0 + 1"));
  EXPECT_THAT(Sent({SumBy(0, {0, 2})}, /*one_relay=*/true), IsEmpty());
}

// Orders that are not its own go to the server alone, which drops them.
TEST(RelayTest, AWorkerDeliversUnderItsOwnOrder) {
  for (const bool order : {true, false}) {
    FromWorker lie = Gradient(0);
    if (order) {
      lie.message.mutable_gradient_part()->set_order(1);
    } else {
      lie.message.mutable_gradient_part()->set_buffer(3);
    }
    EXPECT_THAT(Sent({lie, Gradient(1), Gradient(0)}), ElementsAre("0", "0 + 1"));
  }
}

}  // namespace relay_test
}  // namespace muster
