#include "tests/simulation/network.h"

#include <algorithm>
#include <utility>

#include "common/base/error.h"
#include "common/link/wire_values.h"

namespace muster::testing {
namespace {

using std::chrono::milliseconds;

constexpr Wire::Delays kMemory{milliseconds(2), milliseconds(0)};
constexpr Wire::Delays kNetwork{milliseconds(20), milliseconds(10)};
constexpr Wire::Delays kFastMemory{std::chrono::microseconds(10), milliseconds(0)};
constexpr Wire::Delays kSwitch{std::chrono::microseconds(100), milliseconds(0)};  // between cards
constexpr milliseconds kNotice{50};  // until the other end notices the end of a process
constexpr milliseconds kServerTick{100};
constexpr int kEventsAtATime = 16;

}  // namespace

// ---------------------------------------------------------------------------------- the server

class SimulatedServerLink : public ServerLink {
 public:
  SimulatedServerLink(Network& network, SimulatedProcess& process)
      : network_(network), process_(process) {
    network_.links_.push_back(this);
  }
  ~SimulatedServerLink() override { network_.End(*this); }

  const SimulatedProcess& process() const { return process_; }

  void ShareWeights(SharedMemory& weight_buffers) override { weight_buffers_ = &weight_buffers; }
  void ShareGradients(PeerId peer, const GradientLayout& layout) override {
    Connection* const connection = Find(peer);
    if (connection == nullptr || !connection->shares_memory || connection->gradients) return;
    connection->gradients.emplace(layout);
    connection->memory_is_due = true;
  }
  bool SharesMemory(PeerId peer) const override {
    const Connection* const connection = Find(peer);
    return connection != nullptr && connection->shares_memory;
  }
  std::string endpoint() const override { return "simulation://"; }
  int fd() const override { return -1; }
  bool Pending() override { return !inbox_.empty(); }
  bool PrepareToSleep() override {
    if (IsServer()) network_.observer_.idle();
    if (inbox_.empty()) {
      process_.AwaitWake(Clock::now() + network_.chance_.Between(milliseconds(1), kServerTick));
    }
    return false;
  }
  std::optional<FromWorker> Receive() override {
    if (inbox_.empty()) return std::nullopt;
    FromWorker next = std::move(inbox_.front());
    inbox_.pop_front();
    if (IsServer() && next.kind == FromWorker::Kind::kMessage) {
      network_.observer_.received(*Find(next.peer), next.message);
    }
    return next;
  }
  SendResult Send(PeerId peer, const wire::ServerMessage& message,
                  const OutgoingTensor& tensor) override;

  void Arrive(Connection& connection, const wire::WorkerMessage& message, Payload payload) {
    if (connection.shares_memory && connection.gradients) {
      payload = connection.gradients->Find(message);
    }
    inbox_.push_back({FromWorker::Kind::kMessage, connection.peer, message, std::move(payload)});
    process_.Wake();
  }
  void Lose(const Connection& connection) {
    inbox_.push_back({FromWorker::Kind::kLost, connection.peer, {}, {}});
    process_.Wake();
  }

 private:
  bool IsServer() const { return network_.server_ == this; }
  Connection* Find(PeerId peer) const {
    for (const auto& one : network_.connections_) {
      if (one->peer == peer) return one.get();
    }
    return nullptr;
  }

  Network& network_;
  SimulatedProcess& process_;
  SharedMemory* weight_buffers_ = nullptr;
  std::deque<FromWorker> inbox_;
};

// ---------------------------------------------------------------------------------- workers

// Only describes the link. Carries no messages.
class NoLink : public ClientLink {
 public:
  explicit NoLink(bool shares_memory) : shares_memory_(shares_memory) {}
  const char* transport() const override { return "simulation"; }
  bool shares_memory() const override { return shares_memory_; }
  bool any_thread() const override { return shares_memory_; }
  int fd() const override { return -1; }
  bool Pending() override { return false; }
  std::optional<FromServer> Receive() override { return std::nullopt; }
  bool Send(const wire::WorkerMessage&, std::span<const std::byte>, Release) override {
    return false;
  }
  void Flush(milliseconds) override {}

 private:
  const bool shares_memory_;
};

void ArriveAtServer(Connection& connection, const wire::WorkerMessage& message,
                    const std::shared_ptr<const Bytes>& tensor) {
  if (connection.end == nullptr) return;
  Payload payload;
  if (tensor != nullptr) payload = {tensor->data(), tensor->size(), tensor};
  connection.end->Arrive(connection, message, std::move(payload));
}

// A relay's connection to the server or to another relay.
class SimulatedClientLink : public ClientLink, public Receiver {
 public:
  SimulatedClientLink(Network& network, Connection& connection)
      : network_(network), connection_(connection) {
    connection_.receiver = this;
  }
  ~SimulatedClientLink() override {
    connection_.to_server.DropAll();
    for (const std::weak_ptr<Lent>& one : lent_) {
      if (const auto lent = one.lock()) lent->GiveBack();
    }
    connection_.receiver = nullptr;
    network_.Close(connection_);
  }

  const char* transport() const override { return "simulation"; }
  bool shares_memory() const override { return false; }
  bool any_thread() const override { return false; }
  int fd() const override { return -1; }
  bool Pending() override { return !inbox_.empty(); }
  std::optional<FromServer> Receive() override {
    if (inbox_.empty()) return std::nullopt;
    FromServer next = std::move(inbox_.front());
    inbox_.pop_front();
    return next;
  }
  bool Send(const wire::WorkerMessage& message, std::span<const std::byte> tensor,
            Release release) override {
    const auto lent = std::make_shared<Lent>(release);
    std::erase_if(lent_, [](const std::weak_ptr<Lent>& one) { return one.expired(); });
    lent_.push_back(lent);
    const auto arrive = [&connection = connection_, message,
                         lent](const std::shared_ptr<const Bytes>& bytes) {
      ArriveAtServer(connection, message, bytes);
    };
    if (tensor.empty()) {
      connection_.to_server.Send(arrive);
    } else {
      connection_.to_server.Send(arrive, tensor, UrgencyOf(message.gradient_part()));
    }
    return true;
  }
  void Flush(milliseconds) override {}

  void Arrive(FromServer event) override {
    inbox_.push_back(std::move(event));
    connection_.worker.Wake();
  }

 private:
  // A tensor that the network has not sent or dropped yet.
  struct Lent {
    explicit Lent(Release to) : release(to) {}
    ~Lent() { GiveBack(); }
    void GiveBack() {
      const Release now = std::exchange(release, {});
      if (now.call != nullptr) now.call(now.hint);
    }
    Release release;
  };

  Network& network_;
  Connection& connection_;
  std::deque<FromServer> inbox_;
  std::vector<std::weak_ptr<Lent>> lent_;
};

// With shared memory the waiting thread receives, as in direct_channel.cc. Over a network messages
// are handled on arrival, as in threaded_channel.cc.
class SimulatedChannel : public Channel, public Receiver {
 public:
  SimulatedChannel(Network& network, Connection& connection, Owner& owner)
      : network_(network), connection_(connection), owner_(owner), link_(connection.shares_memory) {
    connection_.receiver = this;
  }
  ~SimulatedChannel() override {
    Flush();
    connection_.to_server.DropAll();  // tensors in memory that is freed now
    connection_.receiver = nullptr;
    network_.Close(connection_);
  }

  const ClientLink& link() const override { return link_; }
  void Start() override { BeatLater(); }
  void Stop() override { beats_ = false; }
  void Finish(wire::WorkerMessage last) override {
    Stop();
    Transmit({.message = std::move(last)});
  }
  void Send(Outgoing outgoing, When when) override {
    soon_.push_back(std::move(outgoing));
    if (when == When::kSoon) return;
    Flush();
    handed_over_ = Clock::now();
  }
  Clock::time_point HandedOverAt() const override { return handed_over_; }
  bool Wait(std::unique_lock<std::mutex>& lock, const Ready& ready,
            Clock::time_point until) override;
  void SetWireType(WireType, size_t) override {}

  void Arrive(FromServer event) override {
    inbox_.push_back(std::move(event));
    if (!connection_.shares_memory) HandleOrWait();
    connection_.worker.Wake();
  }

 private:
  void Flush() {
    for (Outgoing& one : soon_) Transmit(std::move(one));
    soon_.clear();
  }
  void Transmit(Outgoing outgoing);
  void BeatLater();
  void Beat();
  // A suspended process handles nothing.
  void HandleOrWait();
  void Handle(size_t most);

  Network& network_;
  Connection& connection_;
  Owner& owner_;
  const NoLink link_;
  std::deque<FromServer> inbox_;
  std::vector<Outgoing> soon_;
  Clock::time_point handed_over_{};
  bool beats_ = true;
};

void SimulatedChannel::Transmit(Outgoing outgoing) {
  const auto arrive = [&connection = connection_, message = std::move(outgoing.message)](
                          const std::shared_ptr<const Bytes>& tensor) {
    ArriveAtServer(connection, message, tensor);
  };
  if (outgoing.tensor.empty() || connection_.shares_memory) {
    connection_.to_server.Send(arrive);
  } else {
    connection_.to_server.Send(arrive, std::as_bytes(outgoing.tensor), outgoing.urgency);
  }
}

bool SimulatedChannel::Wait(std::unique_lock<std::mutex>& lock, const Ready& ready,
                            Clock::time_point until) {
  while (!ready()) {
    if (Clock::now() >= until) return false;
    lock.unlock();
    Flush();
    const bool receives = connection_.shares_memory;
    if (!receives || inbox_.empty()) connection_.worker.AwaitWake(until);
    if (receives) Handle(kEventsAtATime);
    lock.lock();
  }
  return true;
}

void SimulatedChannel::BeatLater() {
  network_.scheduler_.After(kHeartbeatInterval, [&connection = connection_, this] {
    if (connection.receiver == this && beats_) Beat();
  });
}

void SimulatedChannel::Beat() {
  if (connection_.worker.suspended()) {
    return network_.scheduler_.At(connection_.worker.suspended_until(),
                                  [&connection = connection_, this] {
                                    if (connection.receiver == this && beats_) Beat();
                                  });
  }
  try {
    Handle(kEventsAtATime);
    Transmit({.message = owner_.Heartbeat()});
    Flush();
  } catch (const Error&) {
    owner_.Fail(std::current_exception());
  }
  connection_.worker.Wake();
  BeatLater();
}

void SimulatedChannel::HandleOrWait() {
  if (connection_.worker.suspended()) {
    return network_.scheduler_.At(connection_.worker.suspended_until(),
                                  [&connection = connection_, this] {
                                    if (connection.receiver == this) HandleOrWait();
                                  });
  }
  try {
    Handle(inbox_.size());
  } catch (const Error&) {
    owner_.Fail(std::current_exception());
  }
  connection_.worker.Wake();
}

void SimulatedChannel::Handle(size_t most) {
  for (size_t i = 0; i < most && !inbox_.empty(); ++i) {
    FromServer event = std::move(inbox_.front());
    inbox_.pop_front();
    owner_.Handle(std::move(event));
  }
}

SendResult SimulatedServerLink::Send(PeerId peer, const wire::ServerMessage& message,
                                     const OutgoingTensor& tensor) {
  Connection* const connection = Find(peer);
  if (connection == nullptr || connection->receiver == nullptr) return SendResult::kGone;
  if (IsServer()) network_.observer_.sent(*connection, message, tensor.bytes);
  std::shared_ptr<SharedTensors> shared;
  if (std::exchange(connection->memory_is_due, false)) {
    shared = std::make_shared<SharedTensors>();
    using Access = SharedMemory::Access;
    shared->weight_buffers =
        SharedMemory::Map(UniqueFd(::dup(weight_buffers_->fd())), Access::kRead);
    shared->gradient_buffers =
        SharedMemory::Map(UniqueFd(::dup(connection->gradients->fd())), Access::kReadWrite);
  }
  const auto arrive = [connection, message, shared](const std::shared_ptr<const Bytes>& bytes) {
    if (connection->receiver == nullptr) return;
    FromServer event{FromServer::Kind::kMessage, message, {}};
    if (bytes != nullptr) event.payload = {bytes->data(), bytes->size(), bytes};
    if (shared != nullptr) event.shared = std::make_unique<SharedTensors>(std::move(*shared));
    connection->receiver->Arrive(std::move(event));
  };
  const bool is_control = tensor.bytes.empty() && !message.has_weights_chunk();
  if (is_control || connection->shares_memory) {
    connection->to_worker.Send(arrive);
  } else {
    connection->to_worker.DropBefore(tensor.urgency.step - 1);
    connection->to_worker.Send(arrive, tensor.bytes, tensor.urgency);
  }
  return SendResult::kQueued;
}

// -------------------------------------------------------------------------------- the network

std::unique_ptr<ServerLink> Network::Listen(SimulatedProcess& server) {
  auto link = std::make_unique<SimulatedServerLink>(*this, server);
  server_ = link.get();
  return link;
}

std::unique_ptr<ServerLink> Network::ListenAsRelay(SimulatedProcess& relay) {
  return std::make_unique<SimulatedServerLink>(*this, relay);
}

SimulatedServerLink* Network::LinkOf(const SimulatedProcess* process) const {
  if (process == nullptr) return server_;
  const auto link = std::ranges::find_if(
      links_, [process](const SimulatedServerLink* one) { return &one->process() == process; });
  return link == links_.end() ? nullptr : *link;
}

Connection& Network::Add(SimulatedProcess& process, bool shares_memory, SimulatedServerLink* end) {
  const bool limited = !ports_.empty();
  const Wire::Delays& delays =
      shares_memory ? (limited ? kFastMemory : kMemory) : (limited ? kSwitch : kNetwork);
  const Wire wire(scheduler_, chance_, delays);
  connections_.push_back(std::make_unique<Connection>(
      Connection{next_peer_++, process, shares_memory, wire, wire, end}));
  Connection& connection = *connections_.back();
  if (limited && !shares_memory) {
    Port &mine = ports_.at(host_of_.at(&process)), &other = ports_.at(host_of_.at(&end->process()));
    connection.to_server.Join(mine, other, bytes_per_second_);
    connection.to_worker.Join(other, mine, bytes_per_second_);
  }
  return connection;
}

std::unique_ptr<Channel> Network::Connect(SimulatedProcess& worker, bool shares_memory,
                                          Channel::Owner& owner, const SimulatedProcess* to) {
  return std::make_unique<SimulatedChannel>(*this, Add(worker, shares_memory, LinkOf(to)), owner);
}

std::unique_ptr<ClientLink> Network::ConnectRelay(SimulatedProcess& relay,
                                                  const SimulatedProcess* to) {
  SimulatedServerLink* const end = LinkOf(to);
  if (end == nullptr) throw Error(ExitCode::kPeerFailed, "nobody listens");
  return std::make_unique<SimulatedClientLink>(*this, Add(relay, /*shares_memory=*/false, end));
}

Connection* Network::ConnectionOf(const SimulatedProcess& worker) const {
  for (auto one = connections_.rbegin(); one != connections_.rend(); ++one) {
    if (&(*one)->worker == &worker) return one->get();
  }
  return nullptr;
}

// The server reads all data sent before it sees the end.
void Network::Close(Connection& connection) {
  scheduler_.After(chance_.Between(Duration(0), kNotice), [&connection] {
    connection.to_server.Send([&connection](const auto&) {
      if (connection.end != nullptr) connection.end->Lose(connection);
    });
  });
}

void Network::Abandon(SimulatedProcess& worker, bool noticed) {
  Connection* const connection = ConnectionOf(worker);
  if (connection == nullptr || connection->receiver == nullptr) return;
  connection->to_server.Cut(chance_.OneIn(2));
  connection->to_worker.Cut(true);
  if (!noticed) connection->to_server.Hold(std::chrono::hours(24));
}

void Network::AbandonServer() {
  if (server_ != nullptr) End(*server_);
}

void Network::End(SimulatedServerLink& link) {
  if (std::erase(links_, &link) == 0) return;
  if (server_ == &link) server_ = nullptr;
  for (const auto& connection : connections_) {
    if (connection->end != &link) continue;
    connection->end = nullptr;
    connection->to_worker.Cut(chance_.OneIn(2));
    if (connection->receiver == nullptr) continue;
    connection->to_worker.Send([&connection = *connection](const auto&) {
      if (connection.receiver == nullptr) return;
      connection.receiver->Arrive({FromServer::Kind::kLost, {}, {}});
    });
  }
}

}  // namespace muster::testing
