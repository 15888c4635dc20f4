// Reads the greeting of a ZeroMQ server to find out its mechanism. A failed handshake does not tell
// the client why it failed.
#pragma once

#include <chrono>
#include <string>

namespace muster {

// The mechanism ("CURVE", "PLAIN", "NULL") of the server at `address`, a numeric tcp:// endpoint;
// "" if there is none, or if it is not ZeroMQ. Waits for `limit` at most.
std::string MechanismOf(const std::string& address, std::chrono::milliseconds limit);

}  // namespace muster
