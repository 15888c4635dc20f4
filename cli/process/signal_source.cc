#include "cli/process/signal_source.h"

#include "common/base/error.h"
#include "common/base/signals.h"

namespace muster {

SignalSource::SignalSource() {
  ::signal(SIGPIPE, SIG_IGN);
  // If the parent left SIGCHLD ignored, the kernel would discard the exit status of children.
  ::signal(SIGCHLD, SIG_DFL);
  fd_ = ReceiveSignals({SIGUSR1, SIGCHLD}, &before_);
}

SignalSource::~SignalSource() {
  while (Next()) {
  }
  ::sigprocmask(SIG_SETMASK, &before_, nullptr);
}

std::optional<ReceivedSignal> SignalSource::Next() {
  const std::optional<signalfd_siginfo> info = NextSignal(fd_.get());
  if (!info) return std::nullopt;
  return ReceivedSignal{.number = static_cast<int>(info->ssi_signo),
                        .from_terminal = info->ssi_code == SI_KERNEL};
}

void SignalSource::ThrowIfStopped(const char* suffix) {
  while (const std::optional<ReceivedSignal> signal = Next()) {
    if (signal->number == SIGCHLD || signal->number == SIGUSR1) continue;
    throw Error(StopCode(signal->number), "stopped by {}{}", SignalName(signal->number), suffix);
  }
}

}  // namespace muster
