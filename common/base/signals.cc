#include "common/base/signals.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "common/base/resource_limits.h"

namespace muster {

bool IsIgnored(int signal) {
  struct sigaction now {};
  return ::sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

UniqueFd ReceiveSignals(std::initializer_list<int> others, sigset_t* before) {
  sigset_t wanted;
  sigemptyset(&wanted);
  for (const int signal : others) sigaddset(&wanted, signal);
  // The kernel delivers a blocked signal even if it is ignored.
  for (const int signal : kStopSignals) {
    if (!IsIgnored(signal)) sigaddset(&wanted, signal);
  }
  ::sigprocmask(SIG_BLOCK, &wanted, before);
  UniqueFd fd(::signalfd(-1, &wanted, SFD_NONBLOCK | SFD_CLOEXEC));
  if (!fd.valid()) {
    throw Error(ExitCode::kFailure, "cannot receive signals: {}", ErrorText(errno));
  }
  return fd;
}

std::optional<signalfd_siginfo> NextSignal(int fd) {
  signalfd_siginfo info;
  ssize_t got;
  do {
    got = ::read(fd, &info, sizeof info);
  } while (got < 0 && errno == EINTR);
  if (got != static_cast<ssize_t>(sizeof info)) return std::nullopt;
  return info;
}

std::string SignalName(int signal) {
  const char* const name = ::sigabbrev_np(signal);
  return name == nullptr ? "signal " + std::to_string(signal) : std::string("SIG") + name;
}

ExitCode StopCode(int signal) {
  return signal == SIGINT ? ExitCode::kInterrupted : ExitCode::kTerminated;
}

void RestoreSignals() {
  for (const int signal : {SIGTERM, SIGPIPE, SIGCHLD, SIGXFSZ}) ::signal(signal, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

}  // namespace muster
