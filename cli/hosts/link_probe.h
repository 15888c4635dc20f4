// Measures the network between two hosts over a TCP connection of its own. One host listens and
// asks; the other connects and obeys. Every wait has a deadline.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "common/base/fd.h"

namespace muster {

struct LinkFacts {
  double latency_s = 0;               // half of the shortest round trip
  double clock_offset_s = 0;          // the connecting host's clock minus the listening host's
  double monotonic_offset_s = 0;      // the same for CLOCK_MONOTONIC, which traces use
  double to_peer = 0, from_peer = 0;  // bytes per second seen by the listening host; 0: unmeasured
};

class ProbeListener {
 public:
  // Listens at any free port of a numeric address of this host. Throws Error(kFailure).
  explicit ProbeListener(const std::string& address);

  std::vector<int> fds() const;  // to poll for input
  std::string endpoint() const { return endpoint_; }

  // A connection, and the secret with which the other end introduces itself.
  struct Peer {
    UniqueFd fd;
    std::string secret;
  };
  // Takes a connection whose other end has introduced itself, or an invalid one. Does not wait, so
  // that a stranger who says nothing does not delay others.
  Peer Take();
  // Waits some seconds for the other end with this secret; an invalid one if it does not come.
  UniqueFd Await(const std::string& secret);

 private:
  UniqueFd fd_;
  std::string endpoint_;
  std::deque<Peer> silent_;  // those that have not said all of a secret, the oldest first
};

// Asks the host at the other end, and ends the connection. With `bandwidth` it also sends for a
// fraction of a second in each direction. Throws Error(kFailure) if the other end stops answering
// or is too slow.
LinkFacts MeasureLink(const UniqueFd& peer, bool bandwidth);

// The other end: connects, introduces itself, and does what is asked until the connection ends.
// Returns this host's address in this connection. Throws Error(kFailure) if it cannot connect.
std::string ServeProbe(const std::string& endpoint, const std::string& secret);

}  // namespace muster
