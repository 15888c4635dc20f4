// Waiting for something that another process does to memory: polls it for a short time before it
// goes to sleep, if the last waits were short, as adaptive mutexes and Linux' haltpoll do.
//
// To sleep and be woken costs two changes of context and, on a virtual machine whose core has gone
// idle, tens of microseconds. Polling costs a core. So it yields the core (sched_yield) after every
// poll, lest more waiting threads than cores hinder one another, and ends after 50 µs. If that was
// in vain, or others computed on the core meanwhile so that it came back late, nothing is polled
// for a pause, which doubles each time.
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

  // Begins a wait. True: `ready()` holds. False: the caller is to sleep, and to say so.
  template <typename Ready>
  bool Spin(const Ready& ready);
  // The sleep after a Spin that returned false is over.
  void Slept() { End(Clock::now()); }

  // The policy alone. Begin: a wait begins; true: poll. End: it is over.
  bool Begin(Clock::time_point now);
  void End(Clock::time_point now);

  // For how long a wait polls.
  static constexpr std::chrono::microseconds kPollTime{50};
  // A wait up to this long, with sleeping and waking up, would have been over sooner by polling.
  static constexpr std::chrono::microseconds kShort{200};
  // If polling was in vain but the wait was short all the same, the other side slept; it polls
  // again when its pause is over. So many of those in a row are no reason to stop: if all stopped
  // whenever one does, nobody would ever begin again.
  static constexpr int kTolerated = 32;
  // After so many short waits in a row polling is tried.
  static constexpr int kShortWaits = 3;
  // How long the pause is after polling in vain: the first one, and the longest.
  static constexpr std::chrono::milliseconds kFirstPause{1}, kLongestPause{1000};
  // So many successes in a row halve the next pause: together they save as much as polling in vain
  // once may cost, a time slice of somebody else.
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
