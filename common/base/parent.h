// Ties a child's life to its parent's.
#pragma once

#include <sys/types.h>

namespace muster {

// Has the kernel kill this process when `parent` dies, and ends it at once (exit code kPeerFailed)
// if `parent` is not its parent any more. Call early in main.
void DieWithParent(pid_t parent);

}  // namespace muster
