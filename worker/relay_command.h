// Starts the relay of this host (worker/relay/relay.h) from a worker that no launcher of Muster
// has started.
#pragma once

#include <string>

#include "proto/config_fwd.h"

namespace muster {

// Returns the endpoint of the relay that the workers of this job on this host share, in front of
// the server at `endpoint`. On the worker of local rank 0, it also starts the relay in a process of
// its own, which may outlive this one: it ends with its connection to the server, or when it has
// had no worker for a while. Call it while this process has one thread.
std::string JoinRelay(const std::string& endpoint, int local_rank, const config::Config& config,
                      const std::string& token);

}  // namespace muster
