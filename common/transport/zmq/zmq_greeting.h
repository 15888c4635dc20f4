// What a server of ZeroMQ says of itself before anything else: how it wants to be spoken to. A
// handshake that failed tells its client no more than that it failed.
#pragma once

#include <chrono>
#include <string>

namespace muster {

// The mechanism ("CURVE", "PLAIN", "NULL") of what listens at `address`, tcp:// in numbers; "" if
// nobody does, or it is something else. Waits for `limit` at most.
std::string MechanismOf(const std::string& address, std::chrono::milliseconds limit);

}  // namespace muster
