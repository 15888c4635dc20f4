#include "tests/cuda/software_gpu/guard.h"

#include <unistd.h>

#include <csignal>
#include <cstring>
#include <string>

#include "tests/cuda/software_gpu/violation.h"

namespace muster::software_gpu {
namespace {

const DeviceMemory* guarded = nullptr;
struct sigaction before;  // the previous handler

// The process dies anyway, so calls that are unsafe in a handler can at worst lose the message.
void OnFault(int signal, siginfo_t* info, void* context) {
  if (guarded->Contains(info->si_addr)) {
    ReportViolation("the host touches device memory: " + guarded->Describe(info->si_addr));
  }
  sigaction(signal, &before, nullptr);
  if ((before.sa_flags & SA_SIGINFO) != 0 && before.sa_sigaction != nullptr) {
    before.sa_sigaction(signal, info, context);
  }
  // Otherwise the access is repeated, and the process dies as it would have without this handler.
}

}  // namespace

void ExplainHostAccess(const DeviceMemory* memory) {
  if (guarded != nullptr) return;
  guarded = memory;
  struct sigaction action = {};
  action.sa_sigaction = OnFault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(SIGSEGV, &action, &before);
}

void StopExplaining() {
  struct sigaction now = {};
  sigaction(SIGSEGV, nullptr, &now);
  if (now.sa_sigaction == OnFault) sigaction(SIGSEGV, &before, nullptr);
  guarded = nullptr;
}

}  // namespace muster::software_gpu
