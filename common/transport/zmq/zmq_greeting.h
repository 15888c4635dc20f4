// Reads the greeting of a ZeroMQ server to find out its mechanism. The client needs it because a
// failed handshake does not report the reason.
#pragma once

#include <chrono>
#include <string>

namespace muster {

// Returns the mechanism ("CURVE", "PLAIN", "NULL") of the server at `address`, a numeric tcp://
// endpoint. Returns "" if there is no server or it does not use ZeroMQ. Waits at most `limit`.
std::string MechanismOf(const std::string& address, std::chrono::milliseconds limit);

}  // namespace muster
