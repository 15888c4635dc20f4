// Who may speak over ZeroMQ: whoever knows the job's token. libzmq asks here (ZAP, ZeroMQ's RFC 27)
// while it shakes hands with a connection, before it takes any message of it. Without encryption a
// worker gives the token as the password of ZMTP's PLAIN mechanism. With it both sides prove by
// CURVE that they have the keys that come from the token (zmq_keys.h), and show it to nobody.
#pragma once

#include <optional>
#include <string>
#include <vector>
#include <zmq.hpp>

#include "common/link/link.h"

namespace muster {

// Makes `socket`, a worker's, present what the token says, as options.encrypt wants it.
void PresentToken(zmq::socket_t& socket, const LinkOptions& options);

// Owner: the server's link. One for each context; it outlives the sockets that it guards.
class Admission {
 public:
  // What counts of `options`: token and encrypt.
  Admission(zmq::context_t& context, const LinkOptions& options);

  // From now on `socket`, which is not bound yet, takes nobody else.
  void Guard(zmq::socket_t& socket) const;

  int fd() const { return requests_.get(zmq::sockopt::fd); }
  bool Pending();
  // Answers the next request. What is returned is who was turned away, or "" for who was let in;
  // empty: nobody asks.
  std::optional<std::string> Answer();

 private:
  bool Knows(const std::vector<std::string>& request) const;

  const std::string token_;
  const bool encrypt_;
  std::string worker_key_;  // encrypt: the public half, as ZAP has it
  zmq::socket_t requests_;
};

}  // namespace muster
