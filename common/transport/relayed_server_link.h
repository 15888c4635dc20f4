// Makes the workers behind relays (worker/relay) peers of their own. A relay has one connection for
// all workers of its host. Each message names the worker (WorkerMessage.via), and each chunk of
// weights crosses the connection once. A relay on the server's host shares memory with the server:
// the weights, and places for gradients (GradientLayout::OfRelay).
#pragma once

#include <memory>

#include "common/link/link.h"

namespace muster {

std::unique_ptr<ServerLink> WithRelays(std::unique_ptr<ServerLink> link);

}  // namespace muster
