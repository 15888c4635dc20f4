// Signals to stop in the process that updates the weights.
//
// They may reach all processes of a job, whose server then still needs this one. So the server
// starts it with them ignored, from its first instruction on. Every process that it starts would
// inherit that, and could not be ended by SIGTERM: multiprocessing.Pool, for example, would wait
// for ever. An empty handler instead ends with exec, and after a fork this file ends it.
#include <pthread.h>

#include <csignal>
#include <cstdlib>

namespace muster::program {
namespace {

constexpr int kStopSignals[] = {SIGINT, SIGTERM, SIGHUP};

void DoNothing(int) {}

void Set(int signal, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  ::sigaction(signal, &action, nullptr);
}

bool Has(int signal, void (*handler)(int)) {
  struct sigaction now {};
  return ::sigaction(signal, nullptr, &now) == 0 && now.sa_handler == handler;
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
    if (Has(signal, &DoNothing)) Set(signal, SIG_DFL);  // the program may have set its own
  }
  InParent();
}

// When the library is loaded, because the program may start processes before it joins.
__attribute__((constructor)) void TakeStopSignals() {
  if (std::getenv("MUSTER_UPDATE_FD") == nullptr) return;
  bool is_ignored = false;
  for (const int signal : kStopSignals) {
    if (!Has(signal, SIG_IGN)) continue;
    Set(signal, &DoNothing);
    is_ignored = true;
  }
  if (is_ignored) ::pthread_atfork(&BeforeFork, &InParent, &InChild);
}

}  // namespace
}  // namespace muster::program
