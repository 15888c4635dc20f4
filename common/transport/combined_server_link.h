// Combines two server links: the local link for workers on this host and ZeroMQ for all others.
#pragma once

#include <memory>

#include "common/link/link.h"

namespace muster {

// Input of `first` is read first. The endpoint is that of `second`, which workers connect to.
std::unique_ptr<ServerLink> Combine(std::unique_ptr<ServerLink> first,
                                    std::unique_ptr<ServerLink> second);

}  // namespace muster
