// The worker's end of the ZeroMQ link (zmq_server_link.cc): a DEALER. Which tensor goes when is its
// owner's affair (worker/client).
#include <algorithm>
#include <cerrno>

#include "common/base/error.h"
#include "common/base/log.h"
#include "common/link/protocol.h"
#include "common/link/tcp_address.h"
#include "common/transport/zmq/zmq_admission.h"
#include "common/transport/zmq/zmq_connection_ends.h"
#include "common/transport/zmq/zmq_frames.h"
#include "common/transport/zmq/zmq_greeting.h"
#include "common/transport/zmq/zmq_link.h"
#include "common/transport/zmq/zmq_socket.h"

namespace muster {
namespace {

using std::chrono::milliseconds;

// For a greeting from who has just answered.
constexpr milliseconds kGreetingLimit{2000};

class ZmqClientLink : public ClientLink {
 public:
  ZmqClientLink(const std::string& endpoint, const LinkOptions& options)
      : endpoint_(endpoint),
        encrypt_(options.encrypt),
        most_frames_(MostFrames(options.max_server_message_bytes)),
        context_(1),
        socket_(context_, zmq::socket_type::dealer),
        sender_(socket_, kPieceBytes) {
    PresentToken(socket_, options);
    SetCommonOptions(
        socket_, options,
        std::max(options.max_message_bytes, options.max_server_message_bytes) + kFrameOverhead);
    // The server may start later than this worker. Once admitted, a loss is final.
    socket_.set(zmq::sockopt::reconnect_ivl, 100);
    // A host that is not up yet drops the first packet; the kernel would ask again ever more
    // rarely.
    socket_.set(zmq::sockopt::connect_timeout, 3000);
    monitor_ = std::make_unique<ConnectionMonitor>(
        context_, socket_,
        ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH |
            ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL |
            ZMQ_EVENT_DISCONNECTED);
    address_ = Resolve(endpoint, socket_);
    try {
      socket_.connect(address_);
    } catch (const zmq::error_t& error) {
      throw Error(ExitCode::kUsage, "{}: not an endpoint: {}", endpoint, error.what());
    }
  }

  const char* transport() const override { return "ZeroMQ"; }
  bool shares_memory() const override { return false; }
  bool any_thread() const override { return false; }
  int fd() const override { return socket_.get(zmq::sockopt::fd); }
  bool Pending() override { return HasInput(socket_) || monitor_->Pending(); }

  std::optional<FromServer> Receive() override {
    Frames frames = ReceiveFrames(socket_, zmq::recv_flags::dontwait, most_frames_);
    if (frames.empty()) {
      if (!ConnectionIsLost()) return std::nullopt;
      return FromServer{FromServer::Kind::kLost, {}, {}};
    }
    FromServer result{FromServer::Kind::kMalformed, {}, {}};
    if (std::optional<Payload> payload = Assemble(std::move(frames), result.message)) {
      result.kind = FromServer::Kind::kMessage;
      result.payload = std::move(*payload);
    }
    return result;
  }

  bool Send(const wire::WorkerMessage& message, std::span<const std::byte> tensor,
            Release release) override {
    if (sender_.Send(message, tensor, release)) return true;
    // libzmq takes nothing more for a connection that was refused, and says so to the monitor
    // first.
    (void)ConnectionIsLost();
    return false;
  }

  void Flush(milliseconds limit) override {
    // Closing with a linger time is libzmq's only way to wait for its I/O thread.
    monitor_.reset();
    socket_.set(zmq::sockopt::linger, static_cast<int>(limit.count()));
    socket_.close();
    context_.close();
  }

  ~ZmqClientLink() override {
    // Frames borrow tensors: when this returns, the I/O thread has let go of them.
    monitor_.reset();
    socket_.close();
    context_.close();
  }

 private:
  bool ConnectionIsLost();
  void CheckMechanism(const std::string& mechanism) const;
  [[noreturn]] void NotOfThisProtocol() const;
  void OnClosedInHandshake();

  const std::string endpoint_;
  const bool encrypt_;
  const size_t most_frames_;
  std::string address_;  // in numbers
  bool admitted_ = false;
  int closed_in_handshake_ = 0;  // in a row
  zmq::context_t context_;
  zmq::socket_t socket_;
  FrameSender sender_;
  std::unique_ptr<ConnectionMonitor> monitor_;
};

// What became of the connection. Throws Error(kRefused) if the server, whatever it is, does not
// take this worker.
bool ZmqClientLink::ConnectionIsLost() {
  while (const std::optional<ConnectionMonitor::Event> event = monitor_->Next()) {
    switch (event->what) {
      case ZMQ_EVENT_HANDSHAKE_SUCCEEDED:
        admitted_ = true;
        closed_in_handshake_ = 0;
        break;
      case ZMQ_EVENT_HANDSHAKE_FAILED_AUTH:
        throw Error(ExitCode::kRefused, "the server at {} refused this worker: {}", endpoint_,
                    kWrongToken);
      case ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL:
        if (!admitted_) NotOfThisProtocol();
        LogWarning("the connection to the server at {} ends: {}", endpoint_, WhyCut(event->value));
        return true;
      case ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL:
        if (event->value == EPIPE || event->value == ECONNRESET) OnClosedInHandshake();
        break;
      default:
        if (admitted_) return true;  // before that libzmq tries again
    }
  }
  return false;
}

// Throws Error(kRefused) if one of the two encrypts, and the other does not.
void ZmqClientLink::CheckMechanism(const std::string& mechanism) const {
  if (mechanism == "CURVE" && !encrypt_) {
    throw Error(ExitCode::kRefused,
                "the server at {} takes encrypted connections only (CURVE), and this worker's are "
                "not: give it the config.txtpb that the server has written, or "
                "--set cluster.encryption=CURVE",
                endpoint_);
  }
  if (mechanism == "PLAIN" && encrypt_) {
    throw Error(ExitCode::kRefused,
                "the server at {} does not encrypt (its cluster.encryption is NONE, or it listens "
                "on loopback only), and this worker would (CURVE): start both with "
                "cluster.encryption=CURVE, or, where nobody else can listen, with "
                "cluster.encryption=NONE",
                endpoint_);
  }
}

// What cannot be spoken with, by what it says of itself.
void ZmqClientLink::NotOfThisProtocol() const {
  if (IsTcp(endpoint_)) CheckMechanism(MechanismOf(address_, kGreetingLimit));
  throw Error(ExitCode::kRefused,
              "what listens at {} is no server of this protocol (version {}): is this the "
              "endpoint that the server says, and is it the same release of Muster?",
              endpoint_, kProtocolVersion);
}

// A server whose mechanism is another one may hang up before this worker knows. With CURVE it
// cannot say to somebody with a wrong key that it is wrong: it hangs up. So does a tunnel whose
// server has not started yet, which says nothing before.
void ZmqClientLink::OnClosedInHandshake() {
  constexpr int kOften = 3;
  if (!IsTcp(endpoint_) || ++closed_in_handshake_ % kOften != 0) return;
  const std::string mechanism = MechanismOf(address_, kGreetingLimit);
  CheckMechanism(mechanism);
  if (mechanism != "CURVE") return;
  throw Error(ExitCode::kRefused, "the server at {} refused this worker: {}", endpoint_,
              kWrongToken);
}

}  // namespace

std::unique_ptr<ClientLink> ConnectZmq(const std::string& endpoint, const LinkOptions& options) {
  return std::make_unique<ZmqClientLink>(endpoint, options);
}

}  // namespace muster
