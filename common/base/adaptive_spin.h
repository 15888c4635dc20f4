// Waits for another process to change memory: polls briefly before sleeping, if recent waits were
// short, like adaptive mutexes and Linux' haltpoll.
//
// Sleeping and waking costs two context switches and, on a virtual machine with an idle core, tens
// of microseconds. Polling costs a core. So the thread yields the core (sched_yield) after every
// poll, for the case of more waiting threads than cores, and stops after 50 µs. If polling failed,
// or the thread got the core back late, it does not poll during a pause, which doubles each time.
//
// Threads: one.
#pragma once

#include <sched.h>

#include <chrono>

namespace muster {

class AdaptiveSpin {
 public:
  using Clock = std::chrono::steady_clock;
  using Duration = Clock::duration;

  // Begins a wait. True: `ready()` holds. False: the caller must sleep and then call Slept.
  template <typename Ready>
  bool Spin(const Ready& ready);
  // The sleep after a Spin that returned false is over.
  void Slept() { End(Clock::now()); }

  // The policy without the polling. Begin: a wait begins; true: poll. End: the wait is over.
  bool Begin(Clock::time_point now);
  void End(Clock::time_point now);

  // How long a wait polls.
  static constexpr std::chrono::microseconds kPollTime{50};
  // Polling would have ended a wait up to this long, including sleep and wake-up, sooner.
  static constexpr std::chrono::microseconds kShort{200};
  // If polling failed but the wait was short, the other side slept; it polls again after its pause.
  // Tolerate this many in a row: if each side stopped whenever another does, none would ever
  // resume.
  static constexpr int kTolerated = 32;
  // Poll after this many short waits in a row.
  static constexpr int kShortWaits = 3;
  // The first and the longest pause after polling failed.
  static constexpr std::chrono::milliseconds kFirstPause{1}, kLongestPause{1000};
  // This many successes in a row halve the next pause: together they save as much as one failure
  // may cost, a time slice of another thread.
  static constexpr int kForgiven = 256;

 private:
  Clock::time_point began_;
  bool polls_ = false;
  int short_waits_ = 0;
  Duration pause_ = kFirstPause;
  Clock::time_point paused_until_;
  int successes_ = 0;
  int tolerated_ = 0;
};

template <typename Ready>
bool AdaptiveSpin::Spin(const Ready& ready) {
  if (ready()) return true;
  if (!Begin(Clock::now())) return false;
  for (;;) {
    ::sched_yield();
    const bool holds = ready();
    const Clock::time_point now = Clock::now();
    if (holds) End(now);
    if (holds || now - began_ >= kPollTime) return holds;
  }
}

}  // namespace muster
