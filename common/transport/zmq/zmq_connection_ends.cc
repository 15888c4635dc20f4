#include "common/transport/zmq/zmq_connection_ends.h"

#include <netdb.h>
#include <sys/socket.h>

#include <array>
#include <utility>

namespace muster {
namespace {

// Returns the peer's address, or "an unknown peer" if the connection has already ended or is not
// TCP.
std::string PeerAddress(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  std::array<char, NI_MAXHOST> host{};
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
      (address.ss_family != AF_INET && address.ss_family != AF_INET6) ||
      ::getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, host.data(), host.size(),
                    nullptr, 0, NI_NUMERICHOST) != 0) {
    return "an unknown peer";
  }
  return host.data();
}

// With CURVE, libzmq (4.3.4, 4.3.5) keeps a connection with a forged frame open, without reading
// it, if protocol errors are monitored: reporting them overwrites the errno that its engine checks.
// So with encryption, only handshake failures without a protocol error are monitored. Any other
// connection that ends during its handshake has violated the protocol.
int Watched(bool encrypted) {
  return ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_DISCONNECTED |
         (encrypted ? ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL : ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL);
}

}  // namespace

ConnectionEnds::ConnectionEnds(zmq::context_t& context, zmq::socket_t& watched, bool encrypted)
    : encrypted_(encrypted), monitor_(context, watched, Watched(encrypted)) {}

std::optional<ConnectionEnds::End> ConnectionEnds::Next() {
  while (const std::optional<ConnectionMonitor::Event> event = monitor_.Next()) {
    if (event->what == ZMQ_EVENT_ACCEPTED) {
      from_[event->value] = PeerAddress(event->value);
    } else if (event->what == ZMQ_EVENT_DISCONNECTED) {
      const auto from = from_.extract(event->value);
      return End{.fd = event->value,
                 .from = from ? from.mapped() : "an unknown peer",
                 .why_refused = WhyRefused()};
    } else {
      failed_ = event->value;
    }
  }
  return std::nullopt;
}

std::string ConnectionEnds::WhyRefused() {
  const std::optional<int> failed = std::exchange(failed_, std::nullopt);
  if (encrypted_) {
    return failed ? ""
                  : "its handshake failed: its token differs, it does not encrypt "
                    "(cluster.encryption), or it is not a worker";
  }
  if (!failed) return "";
  return *failed == ZMQ_PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH
             ? "its encryption setting (cluster.encryption) differs, or it is not a worker"
             : "it did not send a worker's handshake";
}

std::string WhyCut(int rule) {
  switch (rule) {
    case ZMQ_PROTOCOL_ERROR_ZMTP_INVALID_SEQUENCE:
      return "a frame was repeated or out of order: a third party is tampering with the connection";
    case ZMQ_PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC:
      return "a frame was modified in transit, by a third party or a faulty network";
    default:
      return "the peer violated the ZMTP protocol";
  }
}

}  // namespace muster
