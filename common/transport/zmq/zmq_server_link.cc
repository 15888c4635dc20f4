// The server's end of the ZeroMQ link, a ROUTER socket. Each worker has a DEALER socket and
// therefore one connection. zmq_frames.h defines the frames of a message.
//
// libzmq sends messages in the order in which it receives them. So the server passes it only a few
// tensors at a time; the others wait in the peer's outbox (outbox.h). The client does the same
// (worker/client).
//
// Only connections that know the job's token can send messages (zmq_admission.h).
//
// When a connection is lost, so is the peer. libzmq reports the loss on a monitor socket, with the
// connection's file descriptor, which each received message also carries.
#include <ifaddrs.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <deque>
#include <limits>
#include <unordered_map>
#include <utility>

#include "common/base/error.h"
#include "common/base/fd.h"
#include "common/base/resource_limits.h"
#include "common/link/epoll.h"
#include "common/link/outbox.h"
#include "common/link/protocol.h"
#include "common/link/tcp_address.h"
#include "common/transport/zmq/zmq_admission.h"
#include "common/transport/zmq/zmq_connection_ends.h"
#include "common/transport/zmq/zmq_frames.h"
#include "common/transport/zmq/zmq_link.h"
#include "common/transport/zmq/zmq_socket.h"

namespace muster {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

const char* Hint(int error) {
  switch (error) {
    case EADDRINUSE:
      return "; another process uses this port: choose another one, or * for any free one";
    case EADDRNOTAVAIL:
    case ENODEV:
      return "; choose an address of this host (listed by `ip address`)";
    case EACCES:
      return "; ports below 1024 need root privileges";
    default:
      return "";
  }
}

// Before libzmq listens at a TCP address, it lists the host's interfaces, because the address may
// be an interface name. It aborts if listing them is not permitted.
void CheckInterfacesCanBeListed(const std::string& endpoint) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) {
    throw Error(ExitCode::kFailure,
                "{}: cannot listen: the network interfaces of this host cannot be listed: {}; if "
                "this is a sandbox, allow AF_NETLINK (systemd: RestrictAddressFamilies)",
                endpoint, ErrorText(errno));
  }
  ::freeifaddrs(list);
}

class ZmqServerLink : public ServerLink {
 public:
  ZmqServerLink(const std::string& endpoint, const LinkOptions& options)
      : most_waiting_(options.max_waiting_bytes),
        most_frames_(MostFrames(options.max_message_bytes)),
        context_(options.io_threads),
        admission_(context_, options),
        socket_(context_, zmq::socket_type::router),
        sender_(socket_, std::numeric_limits<size_t>::max()) {
    admission_.Guard(socket_);
    SetCommonOptions(socket_, options, kPieceBytes + kFrameOverhead);
    CloseDeadConnections(options.silence_s);
    socket_.set(zmq::sockopt::router_mandatory, true);
    ends_ = std::make_unique<ConnectionEnds>(context_, socket_, options.encrypt);
    for (const int fd : {room_bell_.get(), loss_alarm_.get(), socket_.get(zmq::sockopt::fd),
                         admission_.fd(), ends_->fd()}) {
      epoll_.Add(fd);
    }
    const std::string address = Resolve(endpoint, socket_);
    if (IsTcp(endpoint)) {
      CheckInterfacesCanBeListed(endpoint);
    } else {
      AdmitThisUserOnly();
    }
    try {
      socket_.bind(address);
    } catch (const zmq::error_t& error) {
      throw Error(ExitCode::kFailure, "{}: cannot listen: {}{}", endpoint, error.what(),
                  Hint(error.num()));
    }
    endpoint_ = endpoint;
    if (!IsTcp(endpoint)) return;
    // Report the advertised or given name, with the actual port.
    TcpAddress told = TcpAddress::Parse(options.advertised.empty() ? endpoint : options.advertised);
    if (told.port == 0) {
      told.port = TcpAddress::Parse(socket_.get(zmq::sockopt::last_endpoint)).port;
    }
    endpoint_ = told.ToEndpoint();
  }

  std::string endpoint() const override { return endpoint_; }
  int fd() const override { return epoll_.get(); }

  bool Pending() override {
    return room_ || HasInput(socket_) || admission_.Pending() || ends_->Pending() ||
           !refused_.empty() || (!losses_.empty() && LossIsDue());
  }

  std::optional<FromWorker> Receive() override;
  SendResult Send(PeerId peer, const wire::ServerMessage& message,
                  const OutgoingTensor& tensor) override;
  void Deliver() override { SendHeldBack(); }

 private:
  // Losses are reported with a delay, because messages that a peer sent before it died may still be
  // in libzmq.
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
  void SetLossAlarm() const;
  // Sends waiting messages while there is room. Returns false if the peer is gone.
  bool SendWaiting(Peer& peer);
  void SendAllWaiting();
  // Retries messages that libzmq did not accept, because libzmq does not report when it accepts
  // more.
  void SendHeldBack() {
    if (std::exchange(held_back_, false)) SendAllWaiting();
  }
  // Returns kFull if libzmq currently accepts nothing more for this peer.
  SendResult HandOver(const Peer& peer, const Outgoing& outgoing, Release sent);
  PeerId FindPeer(const zmq::message_t& identity, const Frames& frames);
  void DrainMonitor();
  void OnStrangersEnd(const ConnectionEnds::End& end);
  void AdmitThisUserOnly();
  std::optional<FromWorker> NextRefused();
  void CloseDeadConnections(double silence_s);

  // Signals that a send window has room again. ZeroMQ's threads use these two, so they must outlive
  // the context.
  const EventFd room_bell_;
  std::atomic<bool> room_{false};  // set after the bell has been rung
  Epoll epoll_;
  bool held_back_ = false;     // libzmq did not accept a message
  const size_t most_waiting_;  // bytes of a peer's messages without tensors
  const size_t most_frames_;   // of a message
  zmq::context_t context_;
  Admission admission_;
  zmq::socket_t socket_;
  FrameSender sender_;
  std::unique_ptr<ConnectionEnds> ends_;
  std::string endpoint_;
  PeerId next_peer_ = 1;
  std::unordered_map<std::string, PeerId> by_identity_;
  std::unordered_map<PeerId, Peer> peers_;
  std::unordered_map<int, PeerId> by_fd_;
  std::deque<Loss> losses_;
  const TimerFd loss_alarm_;  // expires when the first loss is due
  std::deque<FromWorker> refused_;
};

PeerId ZmqServerLink::FindPeer(const zmq::message_t& identity, const Frames& frames) {
  const std::string key = identity.to_string();
  const auto found = by_identity_.find(key);
  if (found != by_identity_.end()) return found->second;
  // Handle the end of an older connection with the same descriptor, which was reported before this
  // one began.
  DrainMonitor();
  const PeerId peer = next_peer_++;
  by_identity_[key] = peer;
  const auto room = [](void* link) { static_cast<ZmqServerLink*>(link)->Ring(); };
  peers_.emplace(peer, Peer{key, Outbox<Outgoing>(Release{room, this})});
  if (frames.empty()) return peer;
  const int fd = zmq_msg_get(const_cast<zmq_msg_t*>(frames[0].handle()), ZMQ_SRCFD);
  if (fd >= 0) by_fd_[fd] = peer;
  return peer;
}

void ZmqServerLink::DrainMonitor() {
  while (const std::optional<ConnectionEnds::End> end = ends_->Next()) {
    const auto found = by_fd_.find(end->fd);
    if (found == by_fd_.end()) {
      OnStrangersEnd(*end);
      continue;
    }
    losses_.push_back({found->second, steady_clock::now() + kLossDelay});
    by_fd_.erase(found);
    if (losses_.size() == 1) SetLossAlarm();
  }
}

void ZmqServerLink::SetLossAlarm() const {
  if (losses_.empty()) return loss_alarm_.Clear();
  const std::chrono::nanoseconds in = losses_.front().due - steady_clock::now();
  loss_alarm_.RingIn(in.count());
}

// Handles the end of a connection that never sent a message. The queue is bounded against floods.
void ZmqServerLink::OnStrangersEnd(const ConnectionEnds::End& end) {
  constexpr size_t kMostRefused = 100;
  if (end.why_refused.empty() || refused_.size() >= kMostRefused) return;
  refused_.push_back(
      {.kind = FromWorker::Kind::kRefused, .refused = end.from, .why_refused = end.why_refused});
}

// Restricts a Unix-domain socket to this user even before libzmq's handshake, as the local link
// does.
void ZmqServerLink::AdmitThisUserOnly() {
  const uid_t user = ::geteuid();
  if (zmq_setsockopt(socket_.handle(), ZMQ_IPC_FILTER_UID, &user, sizeof user) != 0) {
    throw Error(ExitCode::kFailure, "ZMQ_IPC_FILTER_UID: {}", zmq_strerror(zmq_errno()));
  }
}

// Enables TCP keepalive, which closes dead connections of peers that are not members, such as a
// refused worker whose host has vanished. Heartbeats detect lost members.
void ZmqServerLink::CloseDeadConnections(double silence_s) {
  constexpr int kProbes = 3;
  // The kernel's limit. If setting an option fails, libzmq drops the connection.
  static constexpr double kMost = 32767;
  const auto seconds = [](double s) { return static_cast<int>(std::clamp(s, 1.0, kMost)); };
  socket_.set(zmq::sockopt::tcp_keepalive, 1);
  socket_.set(zmq::sockopt::tcp_keepalive_idle, seconds(silence_s));
  socket_.set(zmq::sockopt::tcp_keepalive_intvl, seconds(silence_s / kProbes));
  socket_.set(zmq::sockopt::tcp_keepalive_cnt, kProbes);
}

std::optional<FromWorker> ZmqServerLink::NextRefused() {
  while (const std::optional<std::string> refused = admission_.Answer()) {
    if (refused->empty()) continue;
    return FromWorker{
        .kind = FromWorker::Kind::kRefused, .refused = *refused, .why_refused = kWrongToken};
  }
  if (refused_.empty()) return std::nullopt;
  FromWorker refused = std::move(refused_.front());
  refused_.pop_front();
  return refused;
}

std::optional<FromWorker> ZmqServerLink::Receive() {
  DrainMonitor();  // before a new connection can reuse the file descriptor
  if (room_ && room_.exchange(false)) {
    room_bell_.Clear();
    SendAllWaiting();
  }
  SendHeldBack();
  zmq::message_t identity;
  if (!socket_.recv(identity, zmq::recv_flags::dontwait)) {
    if (losses_.empty() || !LossIsDue()) return NextRefused();
    const PeerId peer = losses_.front().peer;
    losses_.pop_front();
    SetLossAlarm();
    by_identity_.erase(peers_.at(peer).identity);
    peers_.erase(peer);
    return FromWorker{.kind = FromWorker::Kind::kLost, .peer = peer};
  }
  Frames frames;
  if (identity.more()) frames = ReceiveFrames(socket_, zmq::recv_flags::none, most_frames_);
  FromWorker result{FromWorker::Kind::kMalformed, FindPeer(identity, frames), {}, {}};
  if (std::optional<Payload> payload = Assemble(std::move(frames), result.message)) {
    result.kind = FromWorker::Kind::kMessage;
    result.payload = std::move(*payload);
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
  Outbox<Outgoing>& outbox = peer.outbox;
  if (IsOverfull(outbox.control_bytes(), most_waiting_)) return SendResult::kFull;
  // Weights that a relay has already keep their place among the others.
  if (tensor.bytes.empty() && !message.has_weights_chunk()) {
    outbox.AddControl(message.ByteSizeLong(), {message, {}});
  } else {
    outbox.DropTensorsBefore(tensor.urgency.step - 1);
    outbox.AddTensor(tensor.urgency, tensor.bytes.size(), {message, tensor.bytes});
  }
  if (!SendWaiting(peer)) return SendResult::kGone;
  return outbox.control_bytes() > most_waiting_ ? SendResult::kFull : SendResult::kQueued;
}

void ZmqServerLink::SendAllWaiting() {
  for (auto& [id, peer] : peers_) (void)SendWaiting(peer);
}

bool ZmqServerLink::SendWaiting(Peer& peer) {
  SendResult result = SendResult::kQueued;
  peer.outbox.Send([&](const Outgoing& next, Release sent) {
    result = HandOver(peer, next, sent);
    return result == SendResult::kQueued;
  });
  if (result == SendResult::kFull) held_back_ = true;
  if (result == SendResult::kGone) peer.outbox.Clear();
  return result != SendResult::kGone;
}

SendResult ZmqServerLink::HandOver(const Peer& peer, const Outgoing& outgoing, Release sent) {
  SendResult result = SendResult::kFull;
  try {
    zmq::message_t identity(peer.identity.data(), peer.identity.size());
    if (socket_.send(identity, zmq::send_flags::dontwait | zmq::send_flags::sndmore) &&
        sender_.Send(outgoing.message, outgoing.tensor, sent)) {
      // libzmq has borrowed nothing.
      if (outgoing.tensor.empty() && sent.call != nullptr) sent.call(sent.hint);
      return SendResult::kQueued;
    }
  } catch (const zmq::error_t& error) {
    if (error.num() != EHOSTUNREACH && error.num() != EAGAIN) throw;
    if (error.num() == EHOSTUNREACH) result = SendResult::kGone;
  }
  if (sent.call != nullptr) sent.call(sent.hint);
  return result;
}

}  // namespace

std::unique_ptr<ServerLink> ListenZmq(const std::string& endpoint, const LinkOptions& options) {
  return std::make_unique<ZmqServerLink>(endpoint, options);
}

}  // namespace muster
