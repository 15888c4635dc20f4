// The worker's end of the ZeroMQ link (zmq_server_link.cc), a DEALER socket. Its owner decides the
// order of tensors (worker/client).
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

// The time to wait for a greeting from a server that has just answered.
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
    // The server may start later, so connecting is retried. After the handshake, a loss is final.
    socket_.set(zmq::sockopt::reconnect_ivl, 100);
    // A booting host drops the first packet, and the kernel would retry at ever longer intervals.
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
    // libzmq accepts nothing more for a refused connection, but it reports the refusal to the
    // monitor first.
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
    // Frames borrow tensors. After these calls, the I/O thread no longer uses them.
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
  std::string address_;  // numeric
  bool admitted_ = false;
  int closed_in_handshake_ = 0;  // consecutive times
  zmq::context_t context_;
  zmq::socket_t socket_;
  FrameSender sender_;
  std::unique_ptr<ConnectionMonitor> monitor_;
};

// Processes the connection's events. Returns true if the connection is lost. Throws Error(kRefused)
// if the server refuses this worker or is not a Muster server.
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
        LogWarning("closed the connection to the server at {}: {}", endpoint_,
                   WhyCut(event->value));
        return true;
      case ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL:
        if (event->value == EPIPE || event->value == ECONNRESET) OnClosedInHandshake();
        break;
      default:
        if (admitted_) return true;  // before that, libzmq retries
    }
  }
  return false;
}

// Throws Error(kRefused) if only one of the two sides encrypts.
void ZmqClientLink::CheckMechanism(const std::string& mechanism) const {
  if (mechanism == "CURVE" && !encrypt_) {
    throw Error(ExitCode::kRefused,
                "the server at {} accepts encrypted connections only (CURVE), and this worker does "
                "not encrypt: use the config.txtpb that the server wrote, or "
                "--set cluster.encryption=CURVE",
                endpoint_);
  }
  if (mechanism == "PLAIN" && encrypt_) {
    throw Error(ExitCode::kRefused,
                "the server at {} does not encrypt (cluster.encryption is NONE, or it listens "
                "only on loopback), but this worker does (CURVE): start both with "
                "cluster.encryption=CURVE or, on a trusted network, with cluster.encryption=NONE",
                endpoint_);
  }
}

// Throws an error about a peer that does not speak this protocol, based on its greeting.
void ZmqClientLink::NotOfThisProtocol() const {
  if (IsTcp(endpoint_)) CheckMechanism(MechanismOf(address_, kGreetingLimit));
  throw Error(ExitCode::kRefused,
              "the process listening at {} does not speak this protocol (version {}): check that "
              "this is the endpoint the server printed, and that both run the same release",
              endpoint_, kProtocolVersion);
}

// Called when the connection was closed during the handshake. A server with another mechanism may
// hang up before this worker learns why. With CURVE, a server cannot report a wrong key and just
// hangs up. A tunnel whose server has not started yet also hangs up, but without a greeting.
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
