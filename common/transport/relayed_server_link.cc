#include "common/transport/relayed_server_link.h"

#include <array>
#include <deque>
#include <map>
#include <utility>
#include <vector>

namespace muster {
namespace {

constexpr size_t kMostWorkers = 4096;  // behind one relay

class RelayedServerLink : public ServerLink {
 public:
  explicit RelayedServerLink(std::unique_ptr<ServerLink> link) : link_(std::move(link)) {}

  void ShareWeights(SharedMemory& weights) override { link_->ShareWeights(weights); }
  void ShareGradients(PeerId peer, const GradientLayout& layout) override {
    if (IsDirect(peer)) return link_->ShareGradients(peer / 2, layout);
    if (const Relayed* const worker = Find(peer)) {  // once for each connection
      link_->ShareGradients(worker->relay, layout.OfRelay());
    }
  }
  bool SharesMemory(PeerId peer) const override {
    if (IsDirect(peer)) return link_->SharesMemory(peer / 2);
    const Relayed* const worker = Find(peer);
    return worker != nullptr && link_->SharesMemory(worker->relay);
  }
  PeerId ConnectionOf(PeerId peer) const override {
    const Relayed* const worker = IsDirect(peer) ? nullptr : Find(peer);
    return worker == nullptr ? peer : Direct(worker->relay);
  }
  std::string endpoint() const override { return link_->endpoint(); }
  int fd() const override { return link_->fd(); }
  bool Pending() override { return !lost_.empty() || link_->Pending(); }
  bool may_spin() const override { return link_->may_spin(); }
  bool PrepareToSleep() override { return lost_.empty() && link_->PrepareToSleep(); }
  void Deliver() override { link_->Deliver(); }
  std::optional<FromWorker> Receive() override;
  SendResult Send(PeerId peer, const wire::ServerMessage& message,
                  const OutgoingTensor& tensor) override;

 private:
  // Direct peers have odd numbers, those behind relays even ones.
  struct Relay {
    std::map<uint32_t, PeerId> workers;
    // The newest version of each chunk that was sent: even and odd versions, and averages.
    std::array<std::vector<int64_t>, 3> sent;
  };
  struct Relayed {
    PeerId relay;  // the number of its connection
    uint32_t via;
  };

  static PeerId Direct(PeerId peer) { return 2 * peer + 1; }
  static bool IsDirect(PeerId peer) { return peer % 2 == 1; }
  const Relayed* Find(PeerId worker) const {
    const auto found = relayed_.find(worker);
    return found == relayed_.end() ? nullptr : &found->second;
  }
  // Returns nothing if the relay names too many workers, or if the first message of this one is
  // not Hello: its end has overtaken it.
  std::optional<PeerId> WorkerOf(PeerId connection, const wire::WorkerMessage& message);
  FromWorker Lose(const FromWorker& event);
  // The newest version of this chunk that the relay has.
  static int64_t& NewestSent(Relay& relay, const wire::WeightsChunk& weights);

  const std::unique_ptr<ServerLink> link_;
  std::map<PeerId, Relay> relays_;     // by connection
  std::map<PeerId, Relayed> relayed_;  // by the worker's number
  std::deque<PeerId> lost_;            // to be reported
  PeerId next_ = 2;
};

std::optional<PeerId> RelayedServerLink::WorkerOf(PeerId connection,
                                                  const wire::WorkerMessage& message) {
  std::map<uint32_t, PeerId>& workers = relays_[connection].workers;
  const auto found = workers.find(message.via());
  if (found != workers.end()) return found->second;
  if (!message.has_hello() || workers.size() >= kMostWorkers) return std::nullopt;
  const PeerId peer = next_;
  next_ += 2;
  workers[message.via()] = peer;
  relayed_[peer] = {connection, message.via()};
  return peer;
}

// All workers behind a lost relay are lost.
FromWorker RelayedServerLink::Lose(const FromWorker& event) {
  const auto relay = relays_.find(event.peer);
  if (relay != relays_.end()) {
    for (const auto& [via, peer] : relay->second.workers) {
      relayed_.erase(peer);
      lost_.push_back(peer);
    }
    relays_.erase(relay);
  }
  return {.kind = FromWorker::Kind::kLost, .peer = Direct(event.peer)};
}

std::optional<FromWorker> RelayedServerLink::Receive() {
  if (!lost_.empty()) {
    const PeerId peer = lost_.front();
    lost_.pop_front();
    return FromWorker{.kind = FromWorker::Kind::kLost, .peer = peer};
  }
  std::optional<FromWorker> event = link_->Receive();
  if (!event || event->kind == FromWorker::Kind::kRefused) return event;
  if (event->kind == FromWorker::Kind::kLost) return Lose(*event);
  const PeerId connection = event->peer;
  event->peer = Direct(connection);
  if (!event->message.has_via()) return event;
  const std::optional<PeerId> worker = WorkerOf(connection, event->message);
  if (!worker) {
    return FromWorker{.kind = FromWorker::Kind::kMalformed, .peer = Direct(connection)};
  }
  event->peer = *worker;
  if (event->message.has_ended()) {
    relays_[connection].workers.erase(event->message.via());
    relayed_.erase(*worker);
    return FromWorker{.kind = FromWorker::Kind::kLost, .peer = *worker};
  }
  return event;
}

int64_t& RelayedServerLink::NewestSent(Relay& relay, const wire::WeightsChunk& weights) {
  std::vector<int64_t>& versions =
      relay.sent[weights.average() ? 2 : static_cast<size_t>(weights.version() % 2)];
  if (versions.size() <= weights.chunk()) versions.resize(weights.chunk() + 1, -1);
  return versions[weights.chunk()];
}

SendResult RelayedServerLink::Send(PeerId peer, const wire::ServerMessage& message,
                                   const OutgoingTensor& tensor) {
  if (IsDirect(peer)) return link_->Send(peer / 2, message, tensor);
  const Relayed* const worker = Find(peer);
  if (worker == nullptr) return SendResult::kGone;
  wire::ServerMessage relayed = message;
  relayed.set_via(worker->via);
  const PeerId connection = worker->relay;
  if (tensor.bytes.empty()) return link_->Send(connection, relayed, tensor);
  int64_t& newest = NewestSent(relays_[connection], message.weights_chunk());
  if (newest == message.weights_chunk().version()) {
    return link_->Send(connection, relayed, {.bytes = {}, .urgency = tensor.urgency});
  }
  const SendResult result = link_->Send(connection, relayed, tensor);
  if (result == SendResult::kQueued) newest = message.weights_chunk().version();
  return result;
}

}  // namespace

std::unique_ptr<ServerLink> WithRelays(std::unique_ptr<ServerLink> link) {
  return std::make_unique<RelayedServerLink>(std::move(link));
}

}  // namespace muster
