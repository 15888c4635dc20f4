#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <deque>
#include <unordered_map>
#include <utility>

#include "common/error.h"
#include "common/link/local_address.h"
#include "common/link/local_link.h"
#include "common/link/packet_socket.h"
#include "common/link/slot_layout.h"
#include "common/log.h"
#include "common/unique_fd.h"

namespace muster {
namespace {

// Connections at a time, so that strangers of the same user cannot use up all descriptors.
constexpr size_t kMaxPeers = 4096;
constexpr uint64_t kListener = 0;  // its number among the peers' in epoll

// Throws where the kernel cannot protect the weights, before a job depends on it.
void CheckSealing() {
  SharedMemory::Create("muster-probe", 1, SharedMemory::Access::kReadWrite).SealAgainstNewWriters();
}

class LocalServerLink : public ServerLink {
 public:
  LocalServerLink(const std::string& endpoint, const LinkOptions& options)
      : endpoint_(endpoint), options_(options) {
    CheckSealing();
    const LocalAddress address(endpoint);
    listener_.Reset(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    epoll_.Reset(::epoll_create1(EPOLL_CLOEXEC));
    if (!listener_.valid() || !epoll_.valid() ||
        ::bind(listener_.get(), address.get(), address.size) != 0 ||
        ::listen(listener_.get(), SOMAXCONN) != 0) {
      throw Error(ExitCode::kFailure, "{}: cannot listen: {}", endpoint, std::strerror(errno));
    }
    Watch(listener_.get(), kListener, EPOLLIN, EPOLL_CTL_ADD);
  }

  void ShareWeights(SharedMemory& planes) override {
    planes.SealAgainstNewWriters();
    planes_ = &planes;
  }
  std::string endpoint() const override { return endpoint_; }
  int fd() const override { return epoll_.get(); }
  bool Pending() override { return !received_.empty(); }
  std::optional<FromWorker> Receive() override;
  bool Send(PeerId peer, const wire::ServerMessage& message,
            std::span<const std::byte> tensor) override;
  void Deliver() override;

 private:
  struct Peer {
    PacketSocket socket;
    // After Welcome. Payloads share the ownership: a slot outlives its worker until its last chunk
    // is added.
    SlotLayout layout;
    std::shared_ptr<SharedMemory> slot;
    bool waits_for_room = false;
  };

  void Watch(int fd, uint64_t number, uint32_t events, int operation);
  void Accept();
  void Read(PeerId id);
  void Write(PeerId id, Peer& peer);
  void Lose(PeerId id);
  FromWorker Parse(PeerId id, const Peer& peer, const std::string& bytes) const;
  void Welcome(Peer& peer, const wire::ServerMessage& message, const std::string& bytes);

  const std::string endpoint_;
  const LinkOptions options_;
  UniqueFd listener_, epoll_;
  SharedMemory* planes_ = nullptr;
  PeerId next_peer_ = 1;
  std::unordered_map<PeerId, Peer> peers_;
  std::vector<PeerId> to_deliver_;
  std::deque<FromWorker> received_;
};

void LocalServerLink::Watch(int fd, uint64_t number, uint32_t events, int operation) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = number;
  if (::epoll_ctl(epoll_.get(), operation, fd, &event) != 0) {
    throw Error(ExitCode::kFailure, "epoll_ctl: {}", std::strerror(errno));
  }
}

void LocalServerLink::Accept() {
  UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd.valid()) return;
  PacketSocket socket(std::move(fd));
  // Another user may neither read the weights nor write gradients.
  const int64_t user = socket.PeerUser();
  if (user != static_cast<int64_t>(::geteuid())) {
    spdlog::warn("refused a local connection of user {}: this job belongs to user {}", user,
                 ::geteuid());
    return;
  }
  if (peers_.size() >= kMaxPeers) return;
  const PeerId id = next_peer_++;
  Watch(socket.fd(), id, EPOLLIN, EPOLL_CTL_ADD);
  peers_.emplace(id, Peer{.socket = std::move(socket)});
}

FromWorker LocalServerLink::Parse(PeerId id, const Peer& peer, const std::string& bytes) const {
  FromWorker result{FromWorker::Kind::kMalformed, id, {}, {}};
  if (!result.message.ParseFromString(bytes)) {
    result.message.Clear();
    return result;
  }
  result.kind = FromWorker::Kind::kMessage;
  if (!result.message.has_gradient_part() || result.message.gradient_part().empty()) return result;
  // The gradient is in the slot. A part that this worker does not have stays without floats, and
  // is dropped by the server.
  const wire::GradientPart& part = result.message.gradient_part();
  const auto span = peer.layout.Part(part.chunk(), part.subtree());
  if (!peer.slot || !span) return result;
  const std::span<const float> floats = peer.slot->floats().subspan(span->begin, span->count);
  result.payload = {floats.data(), floats.size_bytes(), peer.slot};
  return result;
}

void LocalServerLink::Read(PeerId id) {
  const auto found = peers_.find(id);
  if (found == peers_.end()) return;
  std::vector<std::string> messages;
  std::vector<UniqueFd> unwanted;  // nobody hands descriptors to the server: closed
  switch (found->second.socket.Receive(messages, unwanted)) {
    case PacketSocket::Status::kNothing:
      return;
    case PacketSocket::Status::kClosed:
      return Lose(id);
    case PacketSocket::Status::kMalformed:
      received_.push_back({FromWorker::Kind::kMalformed, id, {}, {}});
      return;
    case PacketSocket::Status::kPacket:
      break;
  }
  for (const std::string& bytes : messages) received_.push_back(Parse(id, found->second, bytes));
}

void LocalServerLink::Lose(PeerId id) {
  peers_.erase(id);  // closed, and so out of epoll
  received_.push_back({FromWorker::Kind::kLost, id, {}, {}});
}

std::optional<FromWorker> LocalServerLink::Receive() {
  if (received_.empty()) {
    epoll_event events[64];
    const int count = ::epoll_wait(epoll_.get(), events, std::size(events), 0);
    for (int i = 0; i < count; ++i) {
      const uint64_t number = events[i].data.u64;
      if (number == kListener) {
        Accept();
        continue;
      }
      if ((events[i].events & EPOLLOUT) != 0) {
        const auto found = peers_.find(number);
        if (found != peers_.end()) Write(number, found->second);
      }
      if ((events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) Read(number);
    }
  }
  if (received_.empty()) return std::nullopt;
  FromWorker result = std::move(received_.front());
  received_.pop_front();
  return result;
}

// The descriptors go with the message that makes use of them.
void LocalServerLink::Welcome(Peer& peer, const wire::ServerMessage& message,
                              const std::string& bytes) {
  MUSTER_CHECK(planes_ != nullptr);
  peer.layout = SlotLayout(message.welcome());
  peer.slot = std::make_shared<SharedMemory>(
      SharedMemory::Create("muster-slot", peer.layout.bytes(), SharedMemory::Access::kRead));
  const int fds[] = {planes_->fd(), peer.slot->fd()};
  peer.socket.AppendWithDescriptors(bytes, fds);
}

bool LocalServerLink::Send(PeerId id, const wire::ServerMessage& message,
                           std::span<const std::byte> tensor) {
  (void)tensor;  // lies where the worker sees it
  const auto found = peers_.find(id);
  if (found == peers_.end()) return false;
  Peer& peer = found->second;
  if (peer.socket.unsent_packets() > static_cast<size_t>(options_.max_queued_messages)) {
    return false;
  }
  const std::string bytes = message.SerializeAsString();
  if (message.has_welcome()) {
    Welcome(peer, message, bytes);
  } else {
    peer.socket.Append(bytes);
  }
  to_deliver_.push_back(id);
  return true;
}

void LocalServerLink::Deliver() {
  for (const PeerId id : std::exchange(to_deliver_, {})) {
    const auto found = peers_.find(id);
    if (found != peers_.end() && found->second.socket.HasUnsent()) Write(id, found->second);
  }
}

void LocalServerLink::Write(PeerId id, Peer& peer) {
  if (!peer.socket.Flush()) return;  // gone; its end of file is read after its last messages
  const bool waits = peer.socket.HasUnsent();
  if (waits == peer.waits_for_room) return;
  peer.waits_for_room = waits;
  Watch(peer.socket.fd(), id, waits ? EPOLLIN | EPOLLOUT : EPOLLIN, EPOLL_CTL_MOD);
}

}  // namespace

std::unique_ptr<ServerLink> ListenLocal(const std::string& endpoint, const LinkOptions& options) {
  return std::make_unique<LocalServerLink>(endpoint, options);
}

}  // namespace muster
