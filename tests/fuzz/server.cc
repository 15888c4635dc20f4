// A run whose workers send correct, reordered, repeated, changed or invented messages, with valid
// or invalid addresses, and connect and leave at any time. The run ends, by itself or with an
// Error. Messages only go to workers that they are for. If the run completes and all gradients and
// data were correct, it has the weights of an undisturbed run.
#include "ps/run/server.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <thread>

#include "common/config/build_graph.h"
#include "common/config/data_format.h"
#include "common/link/protocol.h"
#include "tests/fuzz/book_worker.h"
#include "tests/fuzz/fuzz.h"
#include "tests/job/test_job.h"

namespace muster::fuzz {
namespace fuzz_server {

constexpr uint32_t kWorkers = 2, kSlots = 4;
constexpr int kFewPauses = 3;

// Selects the config by the bits of the first byte.
config::Config ConfigOf(uint8_t how) {
  config::Config config = BookConfig(kWorkers, 3);
  config.mutable_cluster()->set_on_lost_worker((how & 1) != 0 ? config::Cluster::REPLACE
                                                              : config::Cluster::ABORT);
  if ((how & 2) != 0) {
    config.mutable_evaluation()->set_every_steps(1);
    config.mutable_evaluation()->clear_skip_final();
    config.mutable_evaluation()->set_batch(10);
    if ((how & 8) != 0) config.mutable_data()->set_validation_fraction(0.5);
  }
  if ((how & 4) != 0) config.mutable_run()->set_on_nonfinite(config::Run::SKIP_STEP);
  return config;
}

// Builds the peers' messages from the input. Throws an Error at its end.
class ScriptLink : public ServerLink {
 public:
  // `patience`: the number of rounds of the loop after the end of the input.
  ScriptLink(const config::Config& config, Input input, int patience)
      : config_(config), input_(input), patience_(patience) {
    for (uint32_t slot = 0; slot < kSlots; ++slot) Connect(slot);
  }

  std::string endpoint() const override { return "script://"; }
  int fd() const override { return -1; }
  bool Pending() override { return true; }
  std::optional<FromWorker> Receive() override {
    if (over_) return NextEnd();
    if (!flowing_ && input_.empty()) {
      // The loop checks for the end of the run after it has read all messages.
      if (pauses_++ < patience_) return Pause();
      over_ = true;
      throw Error(ExitCode::kTerminated, "the input has ended");
    }
    return flowing_ ? Flow() : Do(input_.Byte());
  }

  SendResult Send(PeerId peer, const wire::ServerMessage& message,
                  const OutgoingTensor& tensor) override {
    const auto slot = SlotOf(peer);
    if (!slot) return SendResult::kGone;
    CheckSent(message, tensor);
    // Valid until the peer is told that it lost its rank.
    if (message.has_welcome()) Require(seated_.insert(peer).second, "a connection has two ranks");
    if (message.has_stop()) seated_.erase(peer);
    workers_[*slot]->Hear(message);
    return SendResult::kQueued;
  }

  // Whether all gradients and data sent were correct.
  bool honest() const { return honest_; }

 private:
  void Connect(uint32_t slot) {
    peers_[slot] = next_peer_++;
    workers_[slot] = std::make_unique<BookWorker>(config_, slot % kWorkers);
  }
  std::optional<uint32_t> SlotOf(PeerId peer) const {
    for (uint32_t slot = 0; slot < kSlots; ++slot) {
      if (peers_[slot] == peer) return slot;
    }
    return std::nullopt;
  }

  static void CheckSent(const wire::ServerMessage& message, const OutgoingTensor& tensor) {
    Require(message.has_refused() || message.address().job() == JobOf(testing::TestToken()),
            "a message belongs to another job");
    Require(message.has_weights_chunk() == !tensor.bytes.empty(), "a tensor without a header");
    uint8_t sum = 0;
    for (const std::byte byte : tensor.bytes) sum ^= static_cast<uint8_t>(byte);
    volatile uint8_t read = sum;  // all of it is readable
    (void)read;
  }

  // Low bits select the worker, high bits the action.
  FromWorker Do(uint8_t byte) {
    const uint32_t slot = byte % kSlots;
    BookWorker& worker = *workers_[slot];
    switch (byte / kSlots % 16) {
      case 0:
      case 1:
        return Say(slot, worker.Hello());
      case 2:
        return Changed(slot, worker.Hello());
      case 3:
      case 4:
      case 5:
        return Say(slot, worker.Next());
      case 6:
      case 7:
        return Changed(slot, worker.Next());
      case 8:
        return Say(slot, last_);
      case 9:
        flowing_ = true;
        return Flow();
      case 10:
        return Changed(slot, {});
      case 11: {
        wire::WorkerMessage leave;
        leave.mutable_leave();
        worker.Address(leave);
        return Say(slot, leave);
      }
      case 12:
        return {.kind = FromWorker::Kind::kMalformed, .peer = peers_[slot]};
      case 13:
        return {.kind = FromWorker::Kind::kRefused, .refused = input_.Piece(), .why_refused = "x"};
      case 14:
        return Lose(slot);
      default:
        (void)worker.Next();  // dropped
        return Say(slot, worker.Next());
    }
  }

  // Sends correct messages until no worker has more.
  FromWorker Flow() {
    for (uint32_t slot = 0; slot < kSlots; ++slot) {
      if (workers_[slot]->has_lines()) return Say(slot, workers_[slot]->Next());
    }
    flowing_ = false;
    return Say(0, workers_[0]->Next());
  }

  // Threads of the server may be busy. With patience, handles their results.
  std::optional<FromWorker> Pause() {
    if (patience_ <= kFewPauses) return std::nullopt;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    flowing_ = std::ranges::any_of(workers_, [](const auto& one) { return one->has_lines(); });
    return flowing_ ? std::optional(Flow()) : std::nullopt;
  }

  FromWorker Lose(uint32_t slot) {
    const PeerId peer = peers_[slot];
    Connect(slot);
    return {.kind = FromWorker::Kind::kLost, .peer = peer};
  }

  // Overlays the message with fields from the input.
  FromWorker Changed(uint32_t slot, wire::WorkerMessage message) {
    const uint8_t how = input_.Byte();
    (void)message.MergeFromString(input_.Piece());
    if ((how & 1) != 0) workers_[slot]->Address(message);
    return Say(slot, std::move(message), how >> 1);
  }

  // `size`: 0 or 1 for a tensor of the right size; otherwise too short, too long or missing.
  FromWorker Say(uint32_t slot, wire::WorkerMessage message, int size = 0) {
    last_ = message;
    FromWorker event{.kind = FromWorker::Kind::kMessage, .peer = peers_[slot]};
    if (message.has_gradient_part()) event.payload = PayloadOf(slot, message.gradient_part(), size);
    if (message.has_hello()) {
      const wire::Hello& right = BookHello();
      honest_ = honest_ && message.hello().train_samples() == right.train_samples();
    }
    // A loss that is not finite skips the step or ends the run.
    if (message.has_slice_loss()) honest_ = honest_ && std::isfinite(message.slice_loss().loss());
    event.message = std::move(message);
    return event;
  }
  const wire::Hello& BookHello() {
    if (!hello_) hello_ = BookWorker(config_, 0).Hello().hello();
    return *hello_;
  }

  Payload PayloadOf(uint32_t slot, const wire::GradientPart& part, int size) {
    const auto values = std::make_shared<std::vector<float>>(workers_[slot]->GradientOf(part));
    if (part.empty() != values->empty()) honest_ = false;
    if (part.empty() || size % 8 == 7) return {};
    if (size % 8 == 6 && !values->empty()) values->pop_back();
    if (size % 8 == 5) values->push_back(1);
    return {.data = values->data(), .bytes = values->size() * sizeof(float), .owner = values};
  }

  // A worker that is told to stop disconnects.
  std::optional<FromWorker> NextEnd() {
    if (ended_ >= kSlots) return std::nullopt;
    return FromWorker{.kind = FromWorker::Kind::kLost, .peer = peers_[ended_++]};
  }

  const config::Config& config_;
  Input input_;
  std::array<PeerId, kSlots> peers_{};
  std::array<std::unique_ptr<BookWorker>, kSlots> workers_;
  PeerId next_peer_ = 1;
  std::set<PeerId> seated_;
  wire::WorkerMessage last_;
  std::optional<wire::Hello> hello_;
  bool flowing_ = false, over_ = false, honest_ = true;
  uint32_t ended_ = 0;
  const int patience_;
  int pauses_ = 0;
};

struct Outcome {
  uint64_t weights_hash = 0;
  bool completed = false, honest = false;
};

Outcome Run(uint8_t how, Input input, int patience = kFewPauses) {
  const config::Config config = ConfigOf(how);
  const Graph graph = BuildGraph(config.model(), InputShape(config.data()));
  Recorder recorder(config, graph, -1);
  auto link = std::make_unique<ScriptLink>(config, input, patience);
  const ScriptLink& script = *link;
  Server server(config, graph, testing::TestToken(), std::move(link), recorder);
  Outcome outcome;
  OrError("", [&] {
    outcome.weights_hash = server.Serve().weights_hash;
    outcome.completed = true;
  });
  outcome.honest = script.honest();
  return outcome;
}

// The hash of a run with Hellos of both workers and correct messages only.
uint64_t UndisturbedHash(uint8_t how) {
  static std::map<uint8_t, uint64_t> hashes;
  const auto [at, is_new] = hashes.emplace(how, 0);
  if (!is_new) return at->second;
  constexpr uint8_t kScript[] = {0, 1, 9 * kSlots, 9 * kSlots, 9 * kSlots, 9 * kSlots};
  const Outcome outcome = Run(how, {kScript, sizeof kScript}, 5000);
  Require(outcome.completed && outcome.honest, "the undisturbed run failed");
  return at->second = outcome.weights_hash;
}

}  // namespace fuzz_server
}  // namespace muster::fuzz

FUZZ_TARGET(server) {
  using namespace muster::fuzz;
  using namespace muster::fuzz::fuzz_server;
  SilenceLogs();
  Input input(data, size);
  const uint8_t how = input.Byte() % 16;
  const Outcome outcome = Run(how, input);
  Require(!outcome.completed || !outcome.honest || outcome.weights_hash == UndisturbedHash(how),
          "the weights differ from the undisturbed run");
  return 0;
}
