#include "common/base/parent.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdlib>

#include "common/base/error.h"

namespace muster {

void DieWithParent(pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The parent may have died before the call above.
  if (::getppid() != parent) std::_Exit(static_cast<int>(ExitCode::kPeerFailed));
}

}  // namespace muster
