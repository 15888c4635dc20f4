// Measures the network between two hosts over a TCP connection of its own. One host listens and
// asks; the other connects and obeys. Every wait has a deadline.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/fd.h"

namespace muster {

struct LinkFacts {
  double latency_s = 0;               // half of the shortest round trip
  double clock_offset_s = 0;          // the connecting host's clock minus the listening host's
  double to_peer = 0, from_peer = 0;  // bytes per second seen by the listening host; 0: unmeasured
};

class ProbeListener {
 public:
  // Listens at any free port of a numeric address of this host. Throws Error(kFailure).
  explicit ProbeListener(const std::string& address);

  int fd() const { return fd_.get(); }
  std::string endpoint() const { return endpoint_; }

  // Waits some seconds for one connection, reads the secret with which the other host introduces
  // itself, and returns both. The secret is "" if there is no connection, or if the other side does
  // not speak.
  struct Peer {
    UniqueFd fd;
    std::string secret;
  };
  Peer Accept() const;

 private:
  UniqueFd fd_;
  std::string endpoint_;
};

// Asks the host at the other end, and ends the connection. With `bandwidth` it also sends for a
// fraction of a second in each direction. Throws Error(kFailure) if the other end stops answering.
LinkFacts MeasureLink(const UniqueFd& peer, bool bandwidth);

// The other end: connects, introduces itself, and does what is asked until the connection ends.
// Returns this host's address in this connection. Throws Error(kFailure) if it cannot connect.
std::string ServeProbe(const std::string& endpoint, const std::string& secret);

}  // namespace muster
