// What both ends of the ZeroMQ link do with sockets and frames.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <zmq.hpp>

#include "common/link/link.h"

namespace muster {

// A frame's bytes as a tensor.
Payload MakePayload(zmq::message_t frame);

zmq::message_t Serialize(const google::protobuf::MessageLite& message);

// The tensor's bytes are sent from where they are: nothing is copied and nothing to be freed.
// libzmq calls `release` in its I/O thread, or where the message or the context is closed.
zmq::message_t Borrow(std::span<const std::byte> tensor, Release release = {});

// True if an edge of ZMQ_FD may have been consumed although there is input.
bool HasInput(zmq::socket_t& socket);

// Reports what becomes of a socket's connections.
class ConnectionMonitor {
 public:
  // `events`: those to be told of, ZMQ_EVENT_… Throws Error(kFailure).
  ConnectionMonitor(zmq::context_t& context, zmq::socket_t& watched, int events);
  ~ConnectionMonitor() { zmq_socket_monitor(watched_.handle(), nullptr, 0); }

  bool Pending() { return HasInput(events_); }
  int fd() const { return events_.get(zmq::sockopt::fd); }

  struct Event {
    int what = 0;  // ZMQ_EVENT_…
    // ZMQ_EVENT_ACCEPTED and DISCONNECTED: the connection's file descriptor; HANDSHAKE_FAILED_…:
    // an errno, or which rule of the protocol was broken.
    int value = 0;
  };
  std::optional<Event> Next();

 private:
  zmq::socket_t& watched_;
  zmq::socket_t events_;
};

void SetCommonOptions(zmq::socket_t& socket, const LinkOptions& options, size_t max_received_bytes);

// What libzmq is told for `endpoint`: an address in numbers. libzmq would look names up later, in
// its own thread, and for ever.
std::string Resolve(const std::string& endpoint, zmq::socket_t& socket);

}  // namespace muster
