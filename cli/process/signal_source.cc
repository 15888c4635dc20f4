#include "cli/process/signal_source.h"

#include <sys/signalfd.h>

#include <cerrno>
#include <cstring>

#include "common/base/error.h"
#include "common/base/resource_limits.h"

namespace muster {

SignalSource::SignalSource() {
  ::signal(SIGPIPE, SIG_IGN);
  // If the parent left SIGCHLD ignored, the kernel would discard the exit status of children.
  ::signal(SIGCHLD, SIG_DFL);

  sigset_t wanted;
  sigemptyset(&wanted);
  for (int signal : {SIGINT, SIGTERM, SIGUSR1, SIGCHLD}) sigaddset(&wanted, signal);
  struct sigaction hangup {};
  ::sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler != SIG_IGN) sigaddset(&wanted, SIGHUP);

  ::sigprocmask(SIG_BLOCK, &wanted, &before_);
  fd_.Reset(::signalfd(-1, &wanted, SFD_NONBLOCK | SFD_CLOEXEC));
  if (!fd_.valid()) {
    throw Error(ExitCode::kFailure, "cannot receive signals: {}", ErrorText(errno));
  }
}

SignalSource::~SignalSource() {
  while (Next()) {
  }
  ::sigprocmask(SIG_SETMASK, &before_, nullptr);
}

std::optional<ReceivedSignal> SignalSource::Next() {
  signalfd_siginfo info;
  ssize_t got;
  do {
    got = ::read(fd_.get(), &info, sizeof info);
  } while (got < 0 && errno == EINTR);
  if (got != static_cast<ssize_t>(sizeof info)) return std::nullopt;
  return ReceivedSignal{.number = static_cast<int>(info.ssi_signo),
                        .from_terminal = info.ssi_code == SI_KERNEL};
}

void SignalSource::ThrowIfStopped(const char* suffix) {
  while (const std::optional<ReceivedSignal> signal = Next()) {
    if (signal->number == SIGCHLD || signal->number == SIGUSR1) continue;
    throw Error(signal->number == SIGINT ? ExitCode::kInterrupted : ExitCode::kTerminated,
                "stopped by SIG{}{}", ::sigabbrev_np(signal->number), suffix);
  }
}

}  // namespace muster
