// Who may speak over ZeroMQ: whoever knows the job's token. A worker gives it as the password of
// ZMTP's PLAIN mechanism, and libzmq asks here (ZAP, ZeroMQ's RFC 27) while it shakes hands with
// a connection, before it takes any message of it.
#pragma once

#include <optional>
#include <string>
#include <zmq.hpp>

namespace muster {

// Makes `socket` present the token.
void PresentToken(zmq::socket_t& socket, const std::string& token);

// Owner: the server's link. One for each context; it outlives the sockets that it guards.
class Admission {
 public:
  Admission(zmq::context_t& context, std::string token);

  // From now on `socket`, which is not bound yet, takes nobody else.
  static void Guard(zmq::socket_t& socket);

  int fd() const { return requests_.get(zmq::sockopt::fd); }
  bool Pending();
  // Answers the next request. What is returned is who was turned away, or "" for who was let in;
  // empty: nobody asks.
  std::optional<std::string> Answer();

 private:
  const std::string token_;
  zmq::socket_t requests_;
};

}  // namespace muster
