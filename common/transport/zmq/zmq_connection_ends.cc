#include "common/transport/zmq/zmq_connection_ends.h"

#include <netdb.h>
#include <sys/socket.h>

#include <array>
#include <utility>

namespace muster {
namespace {

// Whose connection it is; "somebody" where it has ended meanwhile.
std::string PeerAddress(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  std::array<char, NI_MAXHOST> host{};
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
      (address.ss_family != AF_INET && address.ss_family != AF_INET6) ||
      ::getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, host.data(), host.size(),
                    nullptr, 0, NI_NUMERICHOST) != 0) {
    return "somebody";
  }
  return host.data();
}

// With CURVE, libzmq (4.3.4, 4.3.5) keeps a connection open whose frame is forged, and reads it no
// more, where somebody watches for broken rules: telling of it overwrites the errno by which its
// engine would know. So what is watched for then are the ends of handshakes that break no rule;
// whatever else ends before it has spoken broke one.
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
                 .from = from ? from.mapped() : "somebody",
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
                  : "its handshake failed: it has another token, does not encrypt "
                    "(cluster.encryption), or is no worker";
  }
  if (!failed) return "";
  return *failed == ZMQ_PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH
             ? "it does not speak as this server does (cluster.encryption), or is no worker"
             : "what it says is no handshake of a worker";
}

std::string WhyCut(int rule) {
  switch (rule) {
    case ZMQ_PROTOCOL_ERROR_ZMTP_INVALID_SEQUENCE:
      return "a frame came again, or out of order: somebody is on the way between the two";
    case ZMQ_PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC:
      return "a frame was changed on its way, by somebody or by a broken network";
    default:
      return "frames came that break the rules of ZMTP";
  }
}

}  // namespace muster
