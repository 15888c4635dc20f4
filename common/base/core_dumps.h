// Keeps a process's memory to itself.
#pragma once

#include <sys/prctl.h>

namespace muster {

// From now on no core dump holds what this process knows, and no other process of its user can
// attach to it or read its descriptors. Linux refuses this to nobody.
inline void KeepOutOfCoreDumps() { (void)::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0); }

}  // namespace muster
