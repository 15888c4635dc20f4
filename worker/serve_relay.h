// Runs muster-worker as the relay of its host (worker/relay/relay.h).
#pragma once

#include "worker/arguments.h"

namespace muster {

// Throws Error when the relay is no longer needed or has lost its connection.
[[noreturn]] void ServeRelay(const WorkerArguments& arguments);

}  // namespace muster
