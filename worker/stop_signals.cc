#include "worker/stop_signals.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "common/base/signals.h"
#include "common/program/finish_step.h"

namespace muster {
namespace {

std::atomic<bool> leave = false;
static_assert(std::atomic<bool>::is_always_lock_free);

// The line that a signal handler writes.
std::array<char, 64> stop_line;
size_t stop_line_size = 0;

void OnStopSignal(int signal) {
  (void)!::write(STDERR_FILENO, stop_line.data(), stop_line_size);
  const char* const by = signal == SIGINT   ? "SIGINT (Ctrl-C)\n"
                         : signal == SIGHUP ? "SIGHUP\n"
                                            : "SIGTERM\n";
  (void)!::write(STDERR_FILENO, by, std::strlen(by));
  ::raise(signal);  // with its default effect, so that the server sees this process end
}

// Installs the handler, but leaves an ignored signal ignored, as in a shell's background job.
void Handle(int signal, const struct sigaction& action) {
  if (!IsIgnored(signal)) ::sigaction(signal, &action, nullptr);
}

volatile std::sig_atomic_t late_signal = 0;

void OnSignalOfJob(int signal, siginfo_t* info, void*) {
  if (info->si_pid == ::getppid()) {
    ::raise(signal);
    return;
  }
  late_signal = signal;
  ::alarm(kFinishStepSeconds);
}

void OnAlarm(int) {
  std::signal(late_signal, SIG_DFL);
  ::raise(late_signal);
}

void OnLeaveSignal(int) {
  constexpr char kText[] =
      "muster: this worker will leave after its current work (send SIGTERM again to exit now)\n";
  (void)!::write(STDERR_FILENO, kText, sizeof kText - 1);
  leave = true;
}

}  // namespace

void SayWhenStopped(const std::string& who) {
  const int size =
      std::snprintf(stop_line.data(), stop_line.size(), "muster: %s was stopped by ", who.c_str());
  stop_line_size = static_cast<size_t>(std::max(size, 0));  // fits any rank
  struct sigaction action {};
  action.sa_handler = OnStopSignal;
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_NODEFER);
  for (const int signal : kStopSignals) Handle(signal, action);
}

void LeaveOnSignal(uint32_t rank) {
  SayWhenStopped(fmt::format("rank {}", rank));
  struct sigaction action {};
  action.sa_handler = OnLeaveSignal;
  Handle(SIGHUP, action);  // a session that ends sends it just after SIGTERM
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  Handle(SIGTERM, action);
}

void FinishStepOnSignal() {
  struct sigaction action {};
  action.sa_handler = OnAlarm;
  ::sigaction(SIGALRM, &action, nullptr);
  action.sa_sigaction = OnSignalOfJob;
  action.sa_flags = static_cast<int>(SA_SIGINFO | SA_RESETHAND | SA_NODEFER | SA_RESTART);
  for (const int signal : kStopSignals) Handle(signal, action);
}

const std::atomic<bool>& WantedToLeave() { return leave; }

}  // namespace muster
