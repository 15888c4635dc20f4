// Reports when a server's connections end: the peer, and the reason if it was refused.
//
// Owned by the server's link. Memory: one entry per open connection.
#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <zmq.hpp>

#include "common/transport/zmq/zmq_socket.h"

namespace muster {

class ConnectionEnds {
 public:
  // `encrypted`: whether connections use CURVE.
  ConnectionEnds(zmq::context_t& context, zmq::socket_t& watched, bool encrypted);

  int fd() const { return monitor_.fd(); }
  bool Pending() { return monitor_.Pending(); }

  struct End {
    int fd = -1;
    std::string from;         // an address, or "an unknown peer"
    std::string why_refused;  // for users; "" if it was not refused or Admission knows why
  };
  // Returns the next end, in order of occurrence.
  std::optional<End> Next();

 private:
  std::string WhyRefused();

  const bool encrypted_;
  ConnectionMonitor monitor_;
  std::unordered_map<int, std::string> from_;
  // Whether and how the handshake failed on the connection whose end will be reported next.
  std::optional<int> failed_;
};

// Explains to users why libzmq closed an accepted connection (ZMQ_PROTOCOL_ERROR_…).
std::string WhyCut(int rule);

}  // namespace muster
