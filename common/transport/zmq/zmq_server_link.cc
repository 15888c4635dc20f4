// The ZeroMQ link: one ROUTER at the server, a DEALER and so a connection per worker. A message is
// a protobuf frame, followed by a frame of tensor bytes if it has any.
//
// libzmq sends in the order in which it is given messages. So the server gives it few tensors at a
// time: others wait in the peer's outbox (outbox.h). The client does the same (worker/client).
//
// Only connections that know the job's token get as far as a message (zmq_admission.h).
//
// A lost connection is a lost peer: libzmq reports it on a monitor socket, with the file
// descriptor of the connection, which each received message also carries.
#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <deque>
#include <unordered_map>
#include <utility>

#include "common/base/error.h"
#include "common/base/event_fd.h"
#include "common/link/epoll.h"
#include "common/link/outbox.h"
#include "common/link/tcp_address.h"
#include "common/transport/zmq/zmq_admission.h"
#include "common/transport/zmq/zmq_link.h"
#include "common/transport/zmq/zmq_socket.h"

namespace muster {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

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
      : max_waiting_(static_cast<size_t>(options.max_queued_messages)),
        context_(options.io_threads),
        admission_(context_, options.token),
        socket_(context_, zmq::socket_type::router) {
    Admission::Guard(socket_);
    SetCommonOptions(socket_, options, options.max_message_bytes);
    CloseDeadConnections(options.silence_s);
    for (const int fd : {room_bell_.get(), socket_.get(zmq::sockopt::fd), admission_.fd()}) {
      epoll_.Add(fd);
    }
    socket_.set(zmq::sockopt::router_mandatory, true);
    monitor_ = std::make_unique<ConnectionMonitor>(context_, socket_, ZMQ_EVENT_DISCONNECTED);
    const std::string address = Resolve(endpoint, socket_);
    if (!IsTcp(endpoint)) AdmitThisUserOnly();
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
    return room_ || HasInput(socket_) || admission_.Pending() || monitor_->Pending() ||
           (!losses_.empty() && LossIsDue());
  }

  std::optional<FromWorker> Receive() override;
  SendResult Send(PeerId peer, const wire::ServerMessage& message,
                  const OutgoingTensor& tensor) override;

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
    Outbox<Outgoing> outbox;
  };

  void Ring() {
    room_bell_.Ring();
    room_ = true;
  }
  bool LossIsDue() const { return steady_clock::now() >= losses_.front().due; }
  // What waits, for as long as there is room.
  SendResult SendWaiting(Peer& peer);
  SendResult HandOver(const Peer& peer, const Outgoing& outgoing, Release sent);
  PeerId FindPeer(const zmq::message_t& identity, const zmq::message_t& frame);
  void DrainMonitor();
  void AdmitThisUserOnly();
  std::optional<FromWorker> AnswerWhoAsks();
  void CloseDeadConnections(double silence_s);

  // Some window has room again. By ZeroMQ's threads: these outlive the context.
  const EventFd room_bell_;
  std::atomic<bool> room_{false};  // set after the bell was rung
  Epoll epoll_;
  const size_t max_waiting_;  // of a peer
  zmq::context_t context_;
  Admission admission_;
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
  peers_.emplace(peer, Peer{key, Outbox<Outgoing>(Release{room, this})});
  const int fd = zmq_msg_get(const_cast<zmq_msg_t*>(frame.handle()), ZMQ_SRCFD);
  if (fd >= 0) by_fd_[fd] = peer;
  return peer;
}

void ZmqServerLink::DrainMonitor() {
  while (const std::optional<ConnectionMonitor::Event> event = monitor_->Next()) {
    const auto found = by_fd_.find(event->value);
    if (found == by_fd_.end()) continue;  // never said anything
    losses_.push_back({found->second, steady_clock::now() + kLossDelay});
    by_fd_.erase(found);
  }
}

// A Unix-domain socket, like the local link, is for one user: others do not get as far as libzmq's
// handshake.
void ZmqServerLink::AdmitThisUserOnly() {
  const uid_t user = ::geteuid();
  if (zmq_setsockopt(socket_.handle(), ZMQ_IPC_FILTER_UID, &user, sizeof user) != 0) {
    throw Error(ExitCode::kFailure, "ZMQ_IPC_FILTER_UID: {}", zmq_strerror(zmq_errno()));
  }
}

// Beats tell of members that are gone. These are for connections that nobody waits for: of a worker
// that was refused, and whose host then vanished.
void ZmqServerLink::CloseDeadConnections(double silence_s) {
  constexpr int kProbes = 3;
  // The kernel's; libzmq drops connections that refuse an option.
  static constexpr double kMost = 32767;
  const auto seconds = [](double s) { return static_cast<int>(std::clamp(s, 1.0, kMost)); };
  socket_.set(zmq::sockopt::tcp_keepalive, 1);
  socket_.set(zmq::sockopt::tcp_keepalive_idle, seconds(silence_s));
  socket_.set(zmq::sockopt::tcp_keepalive_intvl, seconds(silence_s / kProbes));
  socket_.set(zmq::sockopt::tcp_keepalive_cnt, kProbes);
}

std::optional<FromWorker> ZmqServerLink::AnswerWhoAsks() {
  while (const std::optional<std::string> refused = admission_.Answer()) {
    if (refused->empty()) continue;
    return FromWorker{.kind = FromWorker::Kind::kRefused, .refused = *refused};
  }
  return std::nullopt;
}

std::optional<FromWorker> ZmqServerLink::Receive() {
  DrainMonitor();  // before a new connection can use the same file descriptor again
  if (room_ && room_.exchange(false)) {
    room_bell_.Clear();
    for (auto& [id, peer] : peers_) (void)SendWaiting(peer);
  }
  zmq::message_t identity;
  if (!socket_.recv(identity, zmq::recv_flags::dontwait)) {
    if (losses_.empty() || !LossIsDue()) return AnswerWhoAsks();
    const PeerId peer = losses_.front().peer;
    losses_.pop_front();
    by_identity_.erase(peers_.at(peer).identity);
    peers_.erase(peer);
    return FromWorker{.kind = FromWorker::Kind::kLost, .peer = peer};
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
                               const OutgoingTensor& tensor) {
  const auto found = peers_.find(id);
  if (found == peers_.end()) return SendResult::kGone;
  Peer& peer = found->second;
  if (tensor.bytes.empty()) {
    peer.outbox.AddControl({message, {}});
  } else {
    if (peer.outbox.tensors() >= max_waiting_) return SendResult::kFull;
    peer.outbox.AddTensor(tensor.urgency, tensor.bytes.size(), {message, tensor.bytes});
  }
  return SendWaiting(peer);
}

SendResult ZmqServerLink::SendWaiting(Peer& peer) {
  SendResult result = SendResult::kQueued;
  peer.outbox.Send([&](const Outgoing& next, Release sent) {
    result = HandOver(peer, next, sent);
    return result == SendResult::kQueued;
  });
  // Who does not drain its messages, or has gone, gets no more.
  if (result != SendResult::kQueued) peer.outbox.Clear();
  return result;
}

SendResult ZmqServerLink::HandOver(const Peer& peer, const Outgoing& outgoing, Release sent) {
  const std::span<const std::byte> tensor = outgoing.tensor;
  // Made first: it is released even if it is not sent.
  zmq::message_t body = tensor.empty() ? zmq::message_t() : Borrow(tensor, sent);
  try {
    zmq::message_t identity(peer.identity.data(), peer.identity.size());
    if (!socket_.send(identity, zmq::send_flags::dontwait | zmq::send_flags::sndmore)) {
      return SendResult::kFull;
    }
    // Once the first frame of a message is accepted, the others are too.
    socket_.send(Serialize(outgoing.message),
                 tensor.empty() ? zmq::send_flags::none : zmq::send_flags::sndmore);
    if (!tensor.empty()) socket_.send(std::move(body), zmq::send_flags::none);
    return SendResult::kQueued;
  } catch (const zmq::error_t& error) {
    if (error.num() == EHOSTUNREACH) return SendResult::kGone;
    if (error.num() == EAGAIN) return SendResult::kFull;
    throw;
  }
}

}  // namespace

std::unique_ptr<ServerLink> ListenZmq(const std::string& endpoint, const LinkOptions& options) {
  return std::make_unique<ZmqServerLink>(endpoint, options);
}

}  // namespace muster
