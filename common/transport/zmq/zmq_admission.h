// Access control for ZeroMQ: only peers that know the job's token may connect. libzmq asks for a
// decision through ZAP (ZeroMQ's RFC 27) during the handshake, before it accepts any message.
// Without encryption, a worker sends the token as the password of ZMTP's PLAIN mechanism. With
// encryption, both sides use CURVE to prove that they have the keys derived from the token
// (zmq_keys.h), without revealing them.
#pragma once

#include <optional>
#include <string>
#include <vector>
#include <zmq.hpp>

#include "common/link/link.h"

namespace muster {

// Sets a worker's credentials from the token, for PLAIN or CURVE (options.encrypt).
void PresentToken(zmq::socket_t& socket, const LinkOptions& options);

// Owned by the server's link. One per context; must outlive the sockets that it guards.
class Admission {
 public:
  // Uses options.token and options.encrypt.
  Admission(zmq::context_t& context, const LinkOptions& options);

  // Makes `socket`, which must not be bound yet, accept only peers with the token.
  void Guard(zmq::socket_t& socket) const;

  int fd() const { return requests_.get(zmq::sockopt::fd); }
  bool Pending();
  // Answers the next request, if there is one. Returns the address of the refused peer, or "" if
  // the peer was accepted.
  std::optional<std::string> Answer();

 private:
  bool Knows(const std::vector<std::string>& request) const;

  const std::string token_;
  const bool encrypt_;
  std::string worker_key_;  // if encrypted: the public key in ZAP's form
  zmq::socket_t requests_;
};

}  // namespace muster
