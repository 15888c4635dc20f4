// Sockets and frames for both ends of the ZeroMQ link.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <zmq.hpp>

#include "common/link/link.h"

namespace muster {

// Returns a frame's bytes as a tensor.
Payload MakePayload(zmq::message_t frame);

zmq::message_t Serialize(const google::protobuf::MessageLite& message);

// Sends the tensor's bytes without copying or freeing them. libzmq calls `release` in its I/O
// thread, or in the thread that closes the message or the context.
zmq::message_t Borrow(std::span<const std::byte> tensor, Release release = {});

// Whether there is input. Its edge on ZMQ_FD may have been consumed already.
bool HasInput(zmq::socket_t& socket);

// Reports events of a socket's connections.
class ConnectionMonitor {
 public:
  // `events` are the ZMQ_EVENT_… flags to report. Throws Error(kFailure).
  ConnectionMonitor(zmq::context_t& context, zmq::socket_t& watched, int events);
  ~ConnectionMonitor() { zmq_socket_monitor(watched_.handle(), nullptr, 0); }

  bool Pending() { return HasInput(events_); }
  int fd() const { return events_.get(zmq::sockopt::fd); }

  struct Event {
    int what = 0;  // ZMQ_EVENT_…
    // The file descriptor for ZMQ_EVENT_ACCEPTED and DISCONNECTED; an errno or the broken protocol
    // rule for HANDSHAKE_FAILED_….
    int value = 0;
  };
  std::optional<Event> Next();

 private:
  zmq::socket_t& watched_;
  zmq::socket_t events_;
};

void SetCommonOptions(zmq::socket_t& socket, const LinkOptions& options, size_t max_received_bytes);

// Converts `endpoint` to a numeric address for libzmq, which would otherwise resolve names later,
// in its own thread, and retry forever.
std::string Resolve(const std::string& endpoint, zmq::socket_t& socket);

}  // namespace muster
