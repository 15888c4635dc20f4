// Waits for another process to change memory. If recent waits were short, polls briefly before
// sleeping, like adaptive mutexes and Linux's haltpoll.
//
// Sleeping and waking costs two context switches and, on a virtual machine with an idle core, tens
// of microseconds. Polling costs a core. So the thread yields the core (sched_yield) after every
// poll, in case more threads wait than there are cores, and stops after 50 µs. If polling failed,
// or if the thread got the core back late, it stops polling for a pause that doubles each time.
//
// Use from one thread only.
#pragma once

#include <sched.h>

#include <chrono>

namespace muster {

class AdaptiveSpin {
 public:
  using Clock = std::chrono::steady_clock;
  using Duration = Clock::duration;

  // Begins a wait. Returns true if `ready()` holds. Otherwise the caller must sleep and then call
  // Slept.
  template <typename Ready>
  bool Spin(const Ready& ready);
  // Call when the sleep that followed a failed Spin is over.
  void Slept() { End(Clock::now()); }

  // The policy without the polling itself. Call Begin at the start of a wait; it returns whether to
  // poll. Call End when the wait is over.
  bool Begin(Clock::time_point now);
  void End(Clock::time_point now);

  // The longest time that a wait polls.
  static constexpr std::chrono::microseconds kPollTime{50};
  // A wait is short if it took at most this long, including sleep and wake-up. Polling would have
  // ended it sooner.
  static constexpr std::chrono::microseconds kShort{200};
  // If polling failed but the wait was short, the other side was asleep and will poll again after
  // its pause. Tolerate this many such waits in a row. If each side stopped polling whenever
  // another one stops, none would ever resume.
  static constexpr int kTolerated = 32;
  // Poll after this many short waits in a row.
  static constexpr int kShortWaits = 3;
  // The first and the longest pause after polling has failed.
  static constexpr std::chrono::milliseconds kFirstPause{1}, kLongestPause{1000};
  // This many successes in a row halve the next pause. Together they save about as much as one
  // failure can cost, which is a time slice of another thread.
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
