// Combines two server links: the local link for workers on this host and ZeroMQ for all others.
#pragma once

#include <memory>

#include "common/link/link.h"

namespace muster {

// Reads input of `first` first. endpoint() returns that of `second`, to which workers connect.
std::unique_ptr<ServerLink> Combine(std::unique_ptr<ServerLink> first,
                                    std::unique_ptr<ServerLink> second);

}  // namespace muster
