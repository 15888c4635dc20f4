// How a server's connections end: whose they were, and whether that was a stranger who was refused.
//
// Owner: the server's link. Memory: a line for each connection that is open.
#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <zmq.hpp>

#include "common/transport/zmq/zmq_socket.h"

namespace muster {

class ConnectionEnds {
 public:
  // `encrypted`: by CURVE.
  ConnectionEnds(zmq::context_t& context, zmq::socket_t& watched, bool encrypted);

  int fd() const { return monitor_.fd(); }
  bool Pending() { return monitor_.Pending(); }

  struct End {
    int fd = -1;
    std::string from;         // an address; "somebody" where it is not known
    std::string why_refused;  // for people; "" if it ended otherwise, or Admission knows why
  };
  // The next one, in the order in which they came about.
  std::optional<End> Next();

 private:
  std::string WhyRefused();

  const bool encrypted_;
  ConnectionMonitor monitor_;
  std::unordered_map<int, std::string> from_;
  // Of the connection whose end is told next: that its handshake failed, and how.
  std::optional<int> failed_;
};

// Why libzmq cut a connection that had been let in (ZMQ_PROTOCOL_ERROR_…), for people.
std::string WhyCut(int rule);

}  // namespace muster
