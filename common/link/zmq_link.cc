// The ZeroMQ link: one ROUTER at the server, a DEALER and so a connection per worker. A message is
// a protobuf frame, followed by a frame of tensor bytes if it has any.
//
// libzmq sends in the order in which it is given messages. So the server gives it few tensors at a
// time (send_window.h): others wait here, older versions and lower layers first, and are overtaken
// by messages without a tensor. The client does the same (worker/client).
//
// A lost connection is a lost peer: libzmq reports it on a monitor socket, with the file
// descriptor of the connection, which each received message also carries.
#include "common/link/zmq_link.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <deque>
#include <map>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <zmq.hpp>

#include "common/arena.h"
#include "common/error.h"
#include "common/link/send_window.h"
#include "common/link/tcp_address.h"
#include "common/unique_fd.h"

namespace muster {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// A frame's bytes as a tensor. A small frame may lie anywhere in libzmq's receive buffer: such a
// one is copied to where floats may lie.
Payload MakePayload(zmq::message_t frame) {
  Payload payload;
  payload.bytes = frame.size();
  if (reinterpret_cast<uintptr_t>(frame.data()) % alignof(float) != 0) {
    auto copy = std::make_shared<Arena>(frame.size() / sizeof(float) + 1);
    std::memcpy(copy->floats().data(), frame.data(), frame.size());
    payload.data = copy->floats().data();
    payload.owner = std::move(copy);
    return payload;
  }
  auto owner = std::make_shared<zmq::message_t>(std::move(frame));
  payload.data = owner->data();
  payload.owner = std::move(owner);
  return payload;
}

zmq::message_t Serialize(const google::protobuf::MessageLite& message) {
  zmq::message_t frame(message.ByteSizeLong());
  message.SerializeToArray(frame.data(), static_cast<int>(frame.size()));
  return frame;
}

// The tensor's bytes are sent from where they are: nothing is copied and nothing to be freed.
// libzmq calls `release` in its I/O thread, or where the message or the context is closed.
zmq::message_t Borrow(std::span<const std::byte> tensor, Release release = {}) {
  void* const data = const_cast<std::byte*>(tensor.data());
  if (release.call == nullptr) {
    return zmq::message_t(
        data, tensor.size(), [](void*, void*) {}, nullptr);
  }
  const auto pass_on = [](void*, void* hint) {
    const std::unique_ptr<Release> owned(static_cast<Release*>(hint));
    owned->call(owned->hint);
  };
  return zmq::message_t(data, tensor.size(), pass_on, new Release(release));
}

// True if an edge of ZMQ_FD may have been consumed although there is input.
bool HasInput(zmq::socket_t& socket) {
  return (socket.get(zmq::sockopt::events) & ZMQ_POLLIN) != 0;
}

// Reports connections that ended, by their file descriptor.
class ConnectionMonitor {
 public:
  ConnectionMonitor(zmq::context_t& context, zmq::socket_t& watched)
      : watched_(watched), events_(context, zmq::socket_type::pair) {
    const std::string address = fmt::format("inproc://monitor-{}", static_cast<void*>(this));
    if (zmq_socket_monitor(watched.handle(), address.c_str(), ZMQ_EVENT_DISCONNECTED) != 0) {
      throw Error(ExitCode::kFailure, "zmq_socket_monitor: {}", zmq_strerror(zmq_errno()));
    }
    events_.connect(address);
  }
  ~ConnectionMonitor() { zmq_socket_monitor(watched_.handle(), nullptr, 0); }

  bool Pending() { return HasInput(events_); }
  int fd() const { return events_.get(zmq::sockopt::fd); }

  std::optional<int> NextDisconnected() {
    zmq::message_t frame;
    if (!events_.recv(frame, zmq::recv_flags::dontwait)) return std::nullopt;
    uint32_t value = 0;
    if (frame.size() >= 6) std::memcpy(&value, static_cast<char*>(frame.data()) + 2, sizeof value);
    while (frame.more()) (void)events_.recv(frame, zmq::recv_flags::none);
    return static_cast<int>(value);
  }

 private:
  zmq::socket_t& watched_;
  zmq::socket_t events_;
};

void SetCommonOptions(zmq::socket_t& socket, const LinkOptions& options,
                      size_t max_received_bytes) {
  socket.set(zmq::sockopt::linger, 0);
  socket.set(zmq::sockopt::sndhwm, options.max_queued_messages);
  socket.set(zmq::sockopt::rcvhwm,
             std::max(1, options.max_received_messages));  // 0 would be: without a limit
  socket.set(zmq::sockopt::maxmsgsize, static_cast<int64_t>(max_received_bytes));
  const int silence_ms = static_cast<int>(options.silence_s * 1000);
  socket.set(zmq::sockopt::heartbeat_ivl, std::max(500, silence_ms / 4));
  socket.set(zmq::sockopt::heartbeat_timeout, silence_ms);
  socket.set(zmq::sockopt::handshake_ivl, silence_ms);
}

// What libzmq is told for `endpoint`: an address in numbers. libzmq would look names up later, in
// its own thread, and for ever.
std::string Resolve(const std::string& endpoint, zmq::socket_t& socket) {
  if (!IsTcp(endpoint)) return endpoint;
  const ResolvedAddress address(TcpAddress::Parse(endpoint));
  if (address.ipv6()) socket.set(zmq::sockopt::ipv6, true);
  return address.ToEndpoint();
}

const char* Hint(int error) {
  switch (error) {
    case EADDRINUSE:
      return "; another process has this port: give another one, or * for any free one";
    case EADDRNOTAVAIL:
    case ENODEV:
      return "; listen on an address of this host (ip address shows them)";
    case EACCES:
      return "; ports below 1024 belong to root";
    default:
      return "";
  }
}

class ZmqServerLink : public ServerLink {
 public:
  ZmqServerLink(const std::string& endpoint, const LinkOptions& options)
      : room_fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        epoll_(::epoll_create1(EPOLL_CLOEXEC)),
        max_waiting_(static_cast<size_t>(options.max_queued_messages)),
        context_(options.io_threads),
        socket_(context_, zmq::socket_type::router) {
    SetCommonOptions(socket_, options, options.max_message_bytes);
    for (const int fd : {room_fd_.get(), socket_.get(zmq::sockopt::fd)}) {
      epoll_event event{};
      event.events = EPOLLIN;
      if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
        throw Error(ExitCode::kFailure, "epoll_ctl: {}", std::strerror(errno));
      }
    }
    socket_.set(zmq::sockopt::router_mandatory, true);
    monitor_ = std::make_unique<ConnectionMonitor>(context_, socket_);
    const std::string address = Resolve(endpoint, socket_);
    try {
      socket_.bind(address);
    } catch (const zmq::error_t& error) {
      throw Error(ExitCode::kFailure, "{}: cannot listen: {}{}", endpoint, error.what(),
                  Hint(error.num()));
    }
    endpoint_ = endpoint;
    if (!IsTcp(endpoint)) return;
    // The name that was given, or is to be told, with the port that was got.
    TcpAddress told = TcpAddress::Parse(options.advertised.empty() ? endpoint : options.advertised);
    if (told.port == 0) {
      told.port = TcpAddress::Parse(socket_.get(zmq::sockopt::last_endpoint)).port;
    }
    endpoint_ = told.ToEndpoint();
  }

  std::string endpoint() const override { return endpoint_; }
  int fd() const override { return epoll_.get(); }

  bool Pending() override {
    return room_ || HasInput(socket_) || monitor_->Pending() || (!losses_.empty() && LossIsDue());
  }

  std::optional<FromWorker> Receive() override;
  SendResult Send(PeerId peer, const wire::ServerMessage& message,
                  std::span<const std::byte> tensor) override;

 private:
  // Messages that a peer sent before it died may still be on their way through libzmq when the
  // loss is reported; a loss is handed on a moment later than it was seen.
  static constexpr milliseconds kLossDelay{50};
  struct Loss {
    PeerId peer;
    steady_clock::time_point due;
  };

  struct Outgoing {
    wire::ServerMessage message;
    std::span<const std::byte> tensor;
  };
  struct Peer {
    std::string identity;
    std::shared_ptr<SendWindow> window;
    std::map<std::tuple<int64_t, bool, uint32_t>, Outgoing> waiting;  // version, average, chunk
  };

  void Ring() {
    const uint64_t one = 1;
    (void)!::write(room_fd_.get(), &one, sizeof one);
    room_ = true;
  }
  bool LossIsDue() const { return steady_clock::now() >= losses_.front().due; }
  // What waits, for as long as there is room in the peer's window.
  SendResult SendWaiting(Peer& peer);
  SendResult HandOver(Peer& peer, const wire::ServerMessage& message,
                      std::span<const std::byte> tensor, Release release);
  PeerId FindPeer(const zmq::message_t& identity, const zmq::message_t& frame);
  void DrainMonitor();

  // Some window has room again. By ZeroMQ's threads: these outlive the context.
  const UniqueFd room_fd_;
  std::atomic<bool> room_{false};  // set after room_fd_ was written to
  const UniqueFd epoll_;
  const size_t max_waiting_;  // of a peer
  zmq::context_t context_;
  zmq::socket_t socket_;
  std::unique_ptr<ConnectionMonitor> monitor_;
  std::string endpoint_;
  PeerId next_peer_ = 1;
  std::unordered_map<std::string, PeerId> by_identity_;
  std::unordered_map<PeerId, Peer> peers_;
  std::unordered_map<int, PeerId> by_fd_;
  std::deque<Loss> losses_;
};

PeerId ZmqServerLink::FindPeer(const zmq::message_t& identity, const zmq::message_t& frame) {
  const std::string key = identity.to_string();
  const auto found = by_identity_.find(key);
  if (found != by_identity_.end()) return found->second;
  // The end of an older connection with the same descriptor was reported before this one began.
  DrainMonitor();
  const PeerId peer = next_peer_++;
  by_identity_[key] = peer;
  const auto room = [](void* link) { static_cast<ZmqServerLink*>(link)->Ring(); };
  peers_[peer] = {key, std::make_shared<SendWindow>(Release{room, this}), {}};
  const int fd = zmq_msg_get(const_cast<zmq_msg_t*>(frame.handle()), ZMQ_SRCFD);
  if (fd >= 0) by_fd_[fd] = peer;
  return peer;
}

void ZmqServerLink::DrainMonitor() {
  while (const std::optional<int> fd = monitor_->NextDisconnected()) {
    const auto found = by_fd_.find(*fd);
    if (found == by_fd_.end()) continue;  // never said anything
    losses_.push_back({found->second, steady_clock::now() + kLossDelay});
    by_fd_.erase(found);
  }
}

std::optional<FromWorker> ZmqServerLink::Receive() {
  DrainMonitor();  // before a new connection can use the same file descriptor again
  if (room_ && room_.exchange(false)) {
    uint64_t count;
    (void)!::read(room_fd_.get(), &count, sizeof count);
    for (auto& [id, peer] : peers_) (void)SendWaiting(peer);
  }
  zmq::message_t identity;
  if (!socket_.recv(identity, zmq::recv_flags::dontwait)) {
    if (losses_.empty() || !LossIsDue()) return std::nullopt;
    const PeerId peer = losses_.front().peer;
    losses_.pop_front();
    by_identity_.erase(peers_.at(peer).identity);
    peers_.erase(peer);
    return FromWorker{FromWorker::Kind::kLost, peer, {}, {}};
  }
  zmq::message_t header, tensor;
  bool complete = identity.more() && socket_.recv(header, zmq::recv_flags::none).has_value();
  bool has_tensor = false;
  if (complete && header.more()) {
    has_tensor = socket_.recv(tensor, zmq::recv_flags::none).has_value();
    // More than two frames: read them away.
    for (bool more = has_tensor && tensor.more(); more;) {
      zmq::message_t excess;
      complete = false;
      more = socket_.recv(excess, zmq::recv_flags::none) && excess.more();
    }
  }
  FromWorker result{FromWorker::Kind::kMalformed, FindPeer(identity, header), {}, {}};
  constexpr size_t kMaxHeader = 4 << 20;
  if (complete && header.size() <= kMaxHeader &&
      result.message.ParseFromArray(header.data(), static_cast<int>(header.size()))) {
    result.kind = FromWorker::Kind::kMessage;
    if (has_tensor) result.payload = MakePayload(std::move(tensor));
  } else {
    result.message.Clear();
  }
  return result;
}

SendResult ZmqServerLink::Send(PeerId id, const wire::ServerMessage& message,
                               std::span<const std::byte> tensor) {
  const auto found = peers_.find(id);
  if (found == peers_.end()) return SendResult::kGone;
  Peer& peer = found->second;
  if (tensor.empty()) return HandOver(peer, message, {}, {});
  if (peer.waiting.size() >= max_waiting_) return SendResult::kFull;
  const wire::WeightsChunk& weights = message.weights_chunk();
  peer.waiting[{weights.version(), weights.average(), weights.chunk()}] = {message, tensor};
  return SendWaiting(peer);
}

SendResult ZmqServerLink::SendWaiting(Peer& peer) {
  while (!peer.waiting.empty()) {
    const Outgoing& next = peer.waiting.begin()->second;
    const size_t bytes = next.tensor.size();
    if (!peer.window->Take(bytes)) return SendResult::kQueued;
    const SendResult result =
        HandOver(peer, next.message, next.tensor, peer.window->GivesBack(bytes));
    if (result != SendResult::kQueued) {
      peer.waiting.clear();  // who does not drain its messages, or has gone, gets no more
      return result;
    }
    peer.waiting.erase(peer.waiting.begin());
  }
  return SendResult::kQueued;
}

SendResult ZmqServerLink::HandOver(Peer& peer, const wire::ServerMessage& message,
                                   std::span<const std::byte> tensor, Release release) {
  // Made first: it is released even if it is not sent.
  zmq::message_t body = tensor.empty() ? zmq::message_t() : Borrow(tensor, release);
  try {
    zmq::message_t identity(peer.identity.data(), peer.identity.size());
    if (!socket_.send(identity, zmq::send_flags::dontwait | zmq::send_flags::sndmore)) {
      return SendResult::kFull;
    }
    // Once the first frame of a message is accepted, the others are too.
    socket_.send(Serialize(message),
                 tensor.empty() ? zmq::send_flags::none : zmq::send_flags::sndmore);
    if (!tensor.empty()) socket_.send(std::move(body), zmq::send_flags::none);
    return SendResult::kQueued;
  } catch (const zmq::error_t& error) {
    if (error.num() == EHOSTUNREACH) return SendResult::kGone;
    if (error.num() == EAGAIN) return SendResult::kFull;
    throw;
  }
}

class ZmqClientLink : public ClientLink {
 public:
  ZmqClientLink(const std::string& endpoint, const LinkOptions& options)
      : context_(1), socket_(context_, zmq::socket_type::dealer) {
    SetCommonOptions(socket_, options,
                     std::max(options.max_message_bytes, options.max_server_message_bytes));
    // The server may start later than this worker. Once connected, a loss is final.
    socket_.set(zmq::sockopt::reconnect_ivl, 100);
    // A host that is not up yet drops the first packet; the kernel would ask again ever more
    // rarely.
    socket_.set(zmq::sockopt::connect_timeout, 3000);
    monitor_ = std::make_unique<ConnectionMonitor>(context_, socket_);
    const std::string address = Resolve(endpoint, socket_);
    try {
      socket_.connect(address);
    } catch (const zmq::error_t& error) {
      throw Error(ExitCode::kUsage, "{}: not an endpoint: {}", endpoint, error.what());
    }
  }

  const char* transport() const override { return "ZeroMQ"; }
  bool any_thread() const override { return false; }
  int fd() const override { return socket_.get(zmq::sockopt::fd); }
  bool Pending() override { return HasInput(socket_) || monitor_->Pending(); }

  std::optional<FromServer> Receive() override {
    zmq::message_t header;
    if (!socket_.recv(header, zmq::recv_flags::dontwait)) {
      if (!monitor_->NextDisconnected()) return std::nullopt;
      return FromServer{FromServer::Kind::kLost, {}, {}};
    }
    FromServer result{FromServer::Kind::kMalformed, {}, {}};
    zmq::message_t tensor;
    bool complete = true;
    if (header.more()) {
      complete = socket_.recv(tensor, zmq::recv_flags::none) && !tensor.more();
      result.payload = MakePayload(std::move(tensor));
    }
    if (complete && result.message.ParseFromArray(header.data(), static_cast<int>(header.size()))) {
      result.kind = FromServer::Kind::kMessage;
    }
    return result;
  }

  bool Send(const wire::WorkerMessage& message, std::span<const std::byte> tensor,
            Release release) override {
    if (!socket_.send(Serialize(message),
                      tensor.empty() ? zmq::send_flags::dontwait
                                     : zmq::send_flags::dontwait | zmq::send_flags::sndmore)) {
      return false;
    }
    if (!tensor.empty()) socket_.send(Borrow(tensor, release), zmq::send_flags::none);
    return true;
  }

  void Flush(milliseconds limit) override {
    // Closing with a linger time is libzmq's only way to wait for its I/O thread.
    monitor_.reset();
    socket_.set(zmq::sockopt::linger, static_cast<int>(limit.count()));
    socket_.close();
    context_.close();
  }

  void AllocateTensors(size_t arena_floats, size_t slots, WireType type) override {
    type_ = type;
    planes_[0] = Arena(arena_floats);
    planes_[1] = Arena(arena_floats);
    for (size_t i = 0; i < slots; ++i) slots_.emplace_back(arena_floats);
  }
  std::span<float> Slot(size_t slot) override { return slots_[slot].floats(); }
  std::span<const float> Plane(int plane) override { return planes_[plane].floats(); }
  void StoreWeights(int plane, size_t begin, const Payload& payload) override {
    if (planes_[plane].floats().empty()) planes_[plane] = Arena(planes_[0].floats().size());
    float* const to = planes_[plane].floats().data() + begin;
    // Of a large model nobody reads a chunk before it has left the cache again.
    constexpr size_t kLarge = (8 << 20) / sizeof(float);
    if (type_ != wire::FP32) {
      const bool large = planes_[plane].floats().size() > kLarge;
      return (large ? WidenPastCache : Widen)(type_, payload.halves(), to);
    }
    std::memcpy(to, payload.data, payload.bytes);
  }

  ~ZmqClientLink() override {
    // Frames borrow the slots: the context, which waits for its I/O thread to let go of them, goes
    // before the slots do.
    monitor_.reset();
    socket_.close();
    context_.close();
  }

 private:
  WireType type_ = wire::FP32;
  Arena planes_[3];  // the last one, the average, only if it is used
  std::deque<Arena> slots_;
  zmq::context_t context_;
  zmq::socket_t socket_;
  std::unique_ptr<ConnectionMonitor> monitor_;
};

}  // namespace

std::unique_ptr<ServerLink> ListenZmq(const std::string& endpoint, const LinkOptions& options) {
  return std::make_unique<ZmqServerLink>(endpoint, options);
}

std::unique_ptr<ClientLink> ConnectZmq(const std::string& endpoint, const LinkOptions& options) {
  return std::make_unique<ZmqClientLink>(endpoint, options);
}

}  // namespace muster
