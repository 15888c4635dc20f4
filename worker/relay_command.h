// Runs muster-worker as the relay of its host (worker/relay/relay.h).
#pragma once

#include <string>

#include "proto/config_fwd.h"
#include "worker/arguments.h"

namespace muster {

// Throws Error when the relay is no longer needed or has lost its connection.
[[noreturn]] void ServeRelay(const WorkerArguments& arguments, const config::Config& config,
                             const std::string& token);

// Returns the endpoint of the relay that the workers of this job on this host share. On the worker
// of local rank 0, it also starts the relay in a process of its own, which may outlive this one: it
// ends with its connection to the server, or when it has had no worker for a while. Call it while
// this process has one thread.
std::string JoinRelay(const WorkerArguments& arguments, const config::Config& config,
                      const std::string& token);

}  // namespace muster
