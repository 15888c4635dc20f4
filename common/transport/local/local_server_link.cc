#include <fmt/core.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <unordered_map>
#include <utility>

#include "common/base/error.h"
#include "common/base/fd.h"
#include "common/base/log.h"
#include "common/base/resource_limits.h"
#include "common/link/epoll.h"
#include "common/transport/local/gradient_memory.h"
#include "common/transport/local/local_address.h"
#include "common/transport/local/local_connection.h"
#include "common/transport/local/local_link.h"

namespace muster {
namespace {

constexpr uint64_t kListener = 0;  // in place of a PeerId in epoll

// Whether a process of this user listens there.
bool IsOurs(const LocalAddress& address) {
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid() || ::connect(fd.get(), address.get(), address.size) != 0) return false;
  return PacketSocket(std::move(fd)).PeerUser() == static_cast<int64_t>(::geteuid());
}

class LocalServerLink : public ServerLink {
 public:
  LocalServerLink(const std::string& endpoint, const LinkOptions& options)
      : endpoint_(endpoint), options_(options) {
    RequireSealing();  // before a job depends on it
    listener_.Reset(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!listener_.valid() || !Bind() || ::listen(listener_.get(), SOMAXCONN) != 0) {
      throw Error(ExitCode::kFailure, "{}: cannot listen: {}", endpoint, ErrorText(errno));
    }
    epoll_.Add(listener_.get(), kListener);
  }

  void ShareWeights(SharedMemory& weight_buffers) override {
    if (!options_.locks_pages) weight_buffers.SealAgainstNewWriters();
    weight_buffers_ = &weight_buffers;
  }
  void ShareGradients(PeerId peer, const GradientLayout& layout) override;
  bool SharesMemory(PeerId) const override { return true; }
  std::string endpoint() const override { return endpoint_; }
  int fd() const override { return epoll_.get(); }
  bool Pending() override;
  bool may_spin() const override { return !attached_.empty(); }
  bool PrepareToSleep() override;
  std::optional<FromWorker> Receive() override;
  SendResult Send(PeerId peer, const wire::ServerMessage& message,
                  const OutgoingTensor& tensor) override;
  void Deliver() override;

 private:
  struct Peer {
    PeerId id;
    LocalConnection connection;
    std::optional<GradientMemory> gradients;
    // Memory for messages. Kept here until it is handed over with the next message.
    struct Rings {
      SharedMemory theirs, mine;
    };
    std::optional<Rings> rings;
    bool waits_for_socket = false;
  };

  bool Bind() const;
  void Accept();
  void PollSockets();
  void PollMemory();
  // Reads the peer's next message, if there is one, into `received_`. `peer` may be destroyed
  // afterwards.
  void Read(Peer& peer, bool look_at_socket);
  void Write(Peer& peer);
  void Lose(Peer& peer);
  FromWorker Parse(const Peer& peer, const std::string& bytes) const;
  void HandOver(Peer& peer, const std::string& message);

  const std::string endpoint_;
  const LinkOptions options_;
  UniqueFd listener_;
  Epoll epoll_;
  SharedMemory* weight_buffers_ = nullptr;
  PeerId next_peer_ = 1;
  RareLine refused_, full_;
  std::unordered_map<PeerId, Peer> peers_;
  std::vector<Peer*> attached_;  // peers whose messages arrive through memory
  std::vector<PeerId> to_deliver_;
  std::deque<FromWorker> received_;
  PollInterval sockets_;
  std::string sent_, taken_;  // buffers for the current messages
};

// Returns false, with errno, if no name is free, or if a process of this user listens at one:
// workers would go there.
bool LocalServerLink::Bind() const {
  for (const std::string& endpoint : StandInsFor(endpoint_, options_.token)) {
    const LocalAddress address(endpoint);
    if (::bind(listener_.get(), address.get(), address.size) == 0) return true;
    const int error = errno;
    const bool goes_on = error == EADDRINUSE && !IsOurs(address);
    if (goes_on) LogWarning("another process has the name {}; listening at the next one", endpoint);
    errno = error;
    if (!goes_on) break;
  }
  return false;
}

void LocalServerLink::Accept() {
  UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd.valid()) return;
  LocalConnection connection{PacketSocket(std::move(fd))};
  // Other users must not read the weights or write gradients.
  const int64_t user = connection.PeerUser();
  if (user != static_cast<int64_t>(::geteuid())) {
    if (refused_.Count()) {
      LogWarning("refused a local connection from user {}: this job belongs to user {} ({} so far)",
                 user, ::geteuid(), refused_.count());
    }
    return;
  }
  if (peers_.size() >= options_.max_local_peers) {
    if (full_.Count()) {
      LogWarning("refused a local connection: {} are open, which is the limit ({} so far)",
                 peers_.size(), full_.count());
    }
    return;
  }
  const PeerId id = next_peer_++;
  epoll_.Add(connection.fd(), id);
  peers_.emplace(id, Peer{.id = id, .connection = std::move(connection)});
}

FromWorker LocalServerLink::Parse(const Peer& peer, const std::string& bytes) const {
  FromWorker result{FromWorker::Kind::kMalformed, peer.id, {}, {}};
  if (!result.message.ParseFromString(bytes)) {
    result.message.Clear();
    return result;
  }
  result.kind = FromWorker::Kind::kMessage;
  if (peer.gradients) result.payload = peer.gradients->Find(result.message);
  return result;
}

void LocalServerLink::Read(Peer& peer, bool look_at_socket) {
  std::vector<UniqueFd> unwanted;  // workers should send no descriptors; any that arrive are closed
  switch (peer.connection.Receive(look_at_socket, taken_, unwanted)) {
    case LocalConnection::Status::kMessage:
      received_.push_back(Parse(peer, taken_));
      return;
    case LocalConnection::Status::kNothing:
      return;
    case LocalConnection::Status::kClosed:
      return Lose(peer);
    case LocalConnection::Status::kMalformed:
      break;
  }
  received_.push_back({FromWorker::Kind::kMalformed, peer.id, {}, {}});
  if (!peer.connection.broken()) return;
  LogWarning(
      "closed the connection of a worker that corrupted its message memory (counts beyond the "
      "ring's {} bytes, or a message of more than {})",
      RingMemory::kBytes, MessageRing::kMaxMessageBytes);
  Lose(peer);
}

void LocalServerLink::Lose(Peer& peer) {
  std::erase(attached_, &peer);
  const PeerId id = peer.id;
  peers_.erase(id);  // closing the socket also removes it from epoll
  received_.push_back({FromWorker::Kind::kLost, id, {}, {}});
}

bool LocalServerLink::Pending() {
  return !received_.empty() || std::ranges::any_of(attached_, [](const Peer* peer) {
    return peer->connection.Pending();
  });
}

bool LocalServerLink::PrepareToSleep() {
  sockets_.DueNow();
  for (Peer* const peer : attached_) {
    peer->connection.PrepareToSleep();
    if (peer->connection.unsent() > 0) Write(*peer);  // so that the peer rings when it makes room
  }
  return !Pending();
}

// Handles new connections, doorbells, ends of file, and messages of peers without memory.
void LocalServerLink::PollSockets() {
  epoll_event events[64];
  const int count = ::epoll_wait(epoll_.get(), events, std::size(events), 0);
  for (int i = 0; i < count; ++i) {
    const PeerId id = events[i].data.u64;  // a copy: the kernel's structure is packed
    if (id == kListener) {
      Accept();
      continue;
    }
    const auto found = peers_.find(id);
    if (found == peers_.end()) continue;
    if ((events[i].events & EPOLLOUT) != 0) Write(found->second);
    if ((events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) Read(found->second, true);
  }
}

// Takes one message from each worker, so that no worker has to wait for another's flood of
// messages.
void LocalServerLink::PollMemory() {
  for (size_t i = 0; i < attached_.size();) {
    Peer* const peer = attached_[i];
    peer->connection.WakeUp();
    if (peer->connection.unsent() > 0) Write(*peer);  // the ring may have room by now
    Read(*peer, false);
    if (i < attached_.size() && attached_[i] == peer) ++i;  // otherwise the peer is gone
  }
}

std::optional<FromWorker> LocalServerLink::Receive() {
  if (received_.empty() && sockets_.Due()) PollSockets();
  if (received_.empty()) PollMemory();
  if (received_.empty()) return std::nullopt;
  FromWorker result = std::move(received_.front());
  received_.pop_front();
  return result;
}

// If memory is unavailable, Welcome is sent without descriptors. With AUTO, the worker then
// reconnects over ZeroMQ.
void LocalServerLink::ShareGradients(PeerId id, const GradientLayout& layout) {
  const auto found = peers_.find(id);
  if (found == peers_.end()) return;
  Peer& peer = found->second;
  MUSTER_CHECK(weight_buffers_ != nullptr);
  // Memory is handed over only once.
  if (peer.connection.attached()) return;
  using Access = SharedMemory::Access;
  try {
    GradientMemory gradients(layout);
    Peer::Rings rings{
        SharedMemory::Create("muster-to-server", sizeof(RingMemory), Access::kRead),
        SharedMemory::Create("muster-to-worker", sizeof(RingMemory), Access::kReadWrite)};
    rings.mine.SealAgainstNewWriters();
    peer.gradients = std::move(gradients);
    peer.rings = std::move(rings);
  } catch (const Error& error) {
    LogWarning("no shared memory for a worker: {}", error.what());
  }
}

// Sends the descriptors together with the message that needs them.
void LocalServerLink::HandOver(Peer& peer, const std::string& message) {
  const int fds[] = {weight_buffers_->fd(), peer.gradients->fd(), peer.rings->theirs.fd(),
                     peer.rings->mine.fd()};
  peer.connection.Append(message, fds);
  peer.connection.Attach(std::move(peer.rings->mine), std::move(peer.rings->theirs));
  peer.rings.reset();
  attached_.push_back(&peer);
}

SendResult LocalServerLink::Send(PeerId id, const wire::ServerMessage& message,
                                 const OutgoingTensor& tensor) {
  (void)tensor;  // the worker reads it in place
  const auto found = peers_.find(id);
  if (found == peers_.end()) return SendResult::kGone;
  Peer& peer = found->second;
  if (IsOverfull(peer.connection.unsent(), options_.max_waiting_bytes)) return SendResult::kFull;
  message.SerializeToString(&sent_);
  if (peer.rings) {
    HandOver(peer, sent_);
  } else {
    peer.connection.Append(sent_);
  }
  to_deliver_.push_back(id);
  return peer.connection.unsent() > options_.max_waiting_bytes ? SendResult::kFull
                                                               : SendResult::kQueued;
}

void LocalServerLink::Deliver() {
  for (const PeerId id : to_deliver_) {
    const auto found = peers_.find(id);
    if (found != peers_.end()) Write(found->second);
  }
  to_deliver_.clear();
}

void LocalServerLink::Write(Peer& peer) {
  if (!peer.connection.Flush()) return;  // closed; the end of file is read after the last messages
  const bool waits = peer.connection.WaitsForSocket();
  if (waits == peer.waits_for_socket) return;
  peer.waits_for_socket = waits;
  epoll_.Change(peer.connection.fd(), peer.id, waits ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

}  // namespace

std::unique_ptr<ServerLink> ListenLocal(const std::string& endpoint, const LinkOptions& options) {
  return std::make_unique<LocalServerLink>(endpoint, options);
}

}  // namespace muster
