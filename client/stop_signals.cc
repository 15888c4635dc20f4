// Signals to stop, which may reach all processes of a job.
//
// The server then still needs a step of this program, so they take effect kFinishStepSeconds later,
// but at once from the launcher, this process's parent, or for the second time. A program that has
// handlers of its own keeps them. (In a job that `muster launch` starts, Job removes Python's for
// SIGINT, which would interrupt a step.)
//
// In the process that updates the weights they have no effect: the server starts it with them
// ignored, and ends it. Every process that it starts would inherit that, and could not be ended by
// SIGTERM: multiprocessing.Pool, for example, would wait for ever.
//
// Handlers end with exec, and after a fork this file ends them.
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <iterator>

#include "common/program/finish_step.h"

namespace muster::program {
namespace {

constexpr int kStopSignals[] = {SIGINT, SIGTERM, SIGHUP};
timer_t timers[std::size(kStopSignals)];  // each sends its signal again

void DoNothing(int, siginfo_t*, void*) {}

// The signal has its default effect from now on.
void Delay(int signal, siginfo_t* info, void*) {
  if (info->si_pid == ::getppid()) {
    ::raise(signal);
    return;
  }
  for (size_t i = 0; i < std::size(kStopSignals); ++i) {
    if (kStopSignals[i] != signal) continue;
    const itimerspec once{.it_interval = {}, .it_value = {.tv_sec = kFinishStepSeconds}};
    ::timer_settime(timers[i], 0, &once, nullptr);
  }
}

using Handler = void (*)(int, siginfo_t*, void*);

void Handle(int signal, Handler handler, int flags) {
  struct sigaction action {};
  action.sa_sigaction = handler;
  action.sa_flags = SA_SIGINFO | SA_RESTART | flags;
  ::sigaction(signal, &action, nullptr);
}

// Whether the signal has this disposition, SIG_DFL or SIG_IGN.
bool Has(int signal, void (*disposition)(int)) {
  struct sigaction now {};
  return ::sigaction(signal, nullptr, &now) == 0 && now.sa_handler == disposition;
}

// A signal for a new child waits until it would end the child.
thread_local sigset_t mask_before_fork;

void BeforeFork() {
  sigset_t stop;
  sigemptyset(&stop);
  for (const int signal : kStopSignals) sigaddset(&stop, signal);
  ::pthread_sigmask(SIG_BLOCK, &stop, &mask_before_fork);
}

void InParent() { ::pthread_sigmask(SIG_SETMASK, &mask_before_fork, nullptr); }

void InChild() {
  for (const int signal : kStopSignals) {
    struct sigaction now {};
    ::sigaction(signal, nullptr, &now);
    const bool is_ours = now.sa_sigaction == &DoNothing || now.sa_sigaction == &Delay;
    if (is_ours) std::signal(signal, SIG_DFL);  // the program may have set its own
  }
  InParent();
}

// When the library is loaded, because the program may start processes before it joins.
__attribute__((constructor)) void TakeStopSignals() {
  const bool updates = std::getenv("MUSTER_UPDATE_FD") != nullptr;
  if (!updates && std::getenv("MUSTER_ENDPOINT") == nullptr) return;
  bool is_ours = false;
  for (size_t i = 0; i < std::size(kStopSignals); ++i) {
    const int signal = kStopSignals[i];
    if (!Has(signal, updates ? SIG_IGN : SIG_DFL)) continue;
    if (updates) {
      Handle(signal, &DoNothing, 0);
    } else {
      sigevent event{};
      event.sigev_notify = SIGEV_SIGNAL;
      event.sigev_signo = signal;
      if (::timer_create(CLOCK_MONOTONIC, &event, &timers[i]) != 0) continue;
      Handle(signal, &Delay, static_cast<int>(SA_RESETHAND | SA_NODEFER));
    }
    is_ours = true;
  }
  if (is_ours) ::pthread_atfork(&BeforeFork, &InParent, &InChild);
}

}  // namespace
}  // namespace muster::program
