#include "common/transport/zmq/zmq_socket.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

#include "common/base/error.h"
#include "common/base/memory.h"
#include "common/link/tcp_address.h"

namespace muster {

// A small frame may be unaligned in libzmq's receive buffer. It is then copied to aligned memory.
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

zmq::message_t Borrow(std::span<const std::byte> tensor, Release release) {
  void* const data = const_cast<std::byte*>(tensor.data());
  if (release.call == nullptr) {
    return zmq::message_t(
        data, tensor.size(), [](void*, void*) {}, nullptr);
  }
  const auto pass_on = [](void*, void* hint) {
    TsanAcquire(hint);
    const std::unique_ptr<Release> owned(static_cast<Release*>(hint));
    owned->call(owned->hint);
  };
  auto* const hint = new Release(release);
  TsanRelease(hint);
  return zmq::message_t(data, tensor.size(), pass_on, hint);
}

bool HasInput(zmq::socket_t& socket) {
  return (socket.get(zmq::sockopt::events) & ZMQ_POLLIN) != 0;
}

ConnectionMonitor::ConnectionMonitor(zmq::context_t& context, zmq::socket_t& watched, int events)
    : watched_(watched), events_(context, zmq::socket_type::pair) {
  const std::string address = fmt::format("inproc://monitor-{}", static_cast<void*>(this));
  if (zmq_socket_monitor(watched.handle(), address.c_str(), events) != 0) {
    throw Error(ExitCode::kFailure, "zmq_socket_monitor: {}", zmq_strerror(zmq_errno()));
  }
  // libzmq's threads must not block on a full queue, neither when many connections end nor in the
  // destructor, which waits for these threads.
  events_.set(zmq::sockopt::rcvhwm, 0);
  events_.connect(address);
}

std::optional<ConnectionMonitor::Event> ConnectionMonitor::Next() {
  zmq::message_t frame;
  if (!events_.recv(frame, zmq::recv_flags::dontwait)) return std::nullopt;
  uint16_t what = 0;
  uint32_t value = 0;
  if (frame.size() >= sizeof what + sizeof value) {
    std::memcpy(&what, frame.data(), sizeof what);
    std::memcpy(&value, static_cast<char*>(frame.data()) + sizeof what, sizeof value);
  }
  while (frame.more()) (void)events_.recv(frame, zmq::recv_flags::none);
  return Event{what, static_cast<int>(value)};
}

namespace {

// The time limit of a handshake. It allows several round trips and limits how long a stranger can
// occupy the server's resources.
constexpr int kHandshakeMs = 5000;

}  // namespace

void SetCommonOptions(zmq::socket_t& socket, const LinkOptions& options,
                      size_t max_received_bytes) {
  socket.set(zmq::sockopt::linger, 0);
  socket.set(zmq::sockopt::sndhwm, options.max_queued_messages);
  socket.set(zmq::sockopt::rcvhwm,
             std::max(1, options.max_received_messages));  // 0 would mean no limit
  socket.set(zmq::sockopt::maxmsgsize, static_cast<int64_t>(max_received_bytes));
  // Our own heartbeats detect silence. ZMTP's heartbeats stay off, because libzmq 4.3.4 aborts if
  // their timer finds a connection that failed while its input was stopped.
  const int silence_ms = static_cast<int>(options.silence_s * 1000);
  socket.set(zmq::sockopt::handshake_ivl, std::clamp(silence_ms, 1, kHandshakeMs));
}

std::string Resolve(const std::string& endpoint, zmq::socket_t& socket) {
  if (!IsTcp(endpoint)) return endpoint;
  const ResolvedAddress address(TcpAddress::Parse(endpoint));
  if (address.ipv6()) socket.set(zmq::sockopt::ipv6, true);
  return address.ToEndpoint();
}

}  // namespace muster
