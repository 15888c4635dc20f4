// The ZeroMQ link. See link.h for the addresses and the errors.
#pragma once

#include <memory>
#include <string>

#include "common/link/link.h"

namespace muster {

std::unique_ptr<ServerLink> ListenZmq(const std::string& endpoint, const LinkOptions& options);

// Starts to connect. The server may appear later; messages wait until then.
std::unique_ptr<ClientLink> ConnectZmq(const std::string& endpoint, const LinkOptions& options);

}  // namespace muster
