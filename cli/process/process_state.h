// What the kernel says of a process.
#pragma once

#include <sys/types.h>

namespace muster {

// Whether it is stopped (SIGSTOP, SIGTSTP, a debugger), so that it neither works nor answers until
// somebody continues it. False for one that is not there.
bool IsStopped(pid_t pid);

}  // namespace muster
