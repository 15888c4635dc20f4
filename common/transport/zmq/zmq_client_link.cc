// The worker's end of the ZeroMQ link (zmq_server_link.cc): a DEALER. Which tensor goes when is its
// owner's affair (worker/client).
#include <algorithm>

#include "common/base/error.h"
#include "common/link/protocol.h"
#include "common/transport/zmq/zmq_admission.h"
#include "common/transport/zmq/zmq_link.h"
#include "common/transport/zmq/zmq_socket.h"

namespace muster {
namespace {

using std::chrono::milliseconds;

class ZmqClientLink : public ClientLink {
 public:
  ZmqClientLink(const std::string& endpoint, const LinkOptions& options)
      : endpoint_(endpoint), context_(1), socket_(context_, zmq::socket_type::dealer) {
    PresentToken(socket_, options.token);
    SetCommonOptions(socket_, options,
                     std::max(options.max_message_bytes, options.max_server_message_bytes));
    // The server may start later than this worker. Once admitted, a loss is final.
    socket_.set(zmq::sockopt::reconnect_ivl, 100);
    // A host that is not up yet drops the first packet; the kernel would ask again ever more
    // rarely.
    socket_.set(zmq::sockopt::connect_timeout, 3000);
    monitor_ = std::make_unique<ConnectionMonitor>(
        context_, socket_,
        ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH |
            ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | ZMQ_EVENT_DISCONNECTED);
    const std::string address = Resolve(endpoint, socket_);
    try {
      socket_.connect(address);
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
    zmq::message_t header;
    if (!socket_.recv(header, zmq::recv_flags::dontwait)) {
      if (!ConnectionIsLost()) return std::nullopt;
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
      // libzmq takes nothing more for a connection that was refused, and says so to the monitor
      // first.
      (void)ConnectionIsLost();
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

  ~ZmqClientLink() override {
    // Frames borrow tensors: when this returns, the I/O thread has let go of them.
    monitor_.reset();
    socket_.close();
    context_.close();
  }

 private:
  bool ConnectionIsLost();

  const std::string endpoint_;
  bool admitted_ = false;
  zmq::context_t context_;
  zmq::socket_t socket_;
  std::unique_ptr<ConnectionMonitor> monitor_;
};

// What became of the connection. Throws Error(kRefused) if the server, whatever it is, does not
// take this worker.
bool ZmqClientLink::ConnectionIsLost() {
  while (const std::optional<ConnectionMonitor::Event> event = monitor_->Next()) {
    switch (event->what) {
      case ZMQ_EVENT_HANDSHAKE_SUCCEEDED:
        admitted_ = true;
        break;
      case ZMQ_EVENT_HANDSHAKE_FAILED_AUTH:
        throw Error(ExitCode::kRefused, "the server at {} refused this worker: {}", endpoint_,
                    kWrongToken);
      case ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL:
        throw Error(ExitCode::kRefused,
                    "what listens at {} is no server of this protocol (version {}): is this the "
                    "endpoint that the server says, and is it the same release of Muster?",
                    endpoint_, kProtocolVersion);
      default:
        if (admitted_) return true;  // before that libzmq tries again
    }
  }
  return false;
}

}  // namespace

std::unique_ptr<ClientLink> ConnectZmq(const std::string& endpoint, const LinkOptions& options) {
  return std::make_unique<ZmqClientLink>(endpoint, options);
}

}  // namespace muster
