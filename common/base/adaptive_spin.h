// Waiting for something that another process does to memory: a short look before going to sleep,
// if the last waits were short, as adaptive mutexes do and Linux' haltpoll.
//
// Sleeping and being woken costs two changes of context and, on a virtual machine whose core has
// gone idle, tens of microseconds. Looking costs a core; it gives it away (sched_yield) after every
// look, so that more waiting threads than cores do not hinder one another, and it is bounded: 50 µs
// a wait. A look that was in vain, or after which the core did not come back soon because others
// compute on it, is not tried again for a while, and that while doubles each time.
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

  // The policy alone. A wait begins: whether to look. It ends.
  bool Begin(Clock::time_point now);
  void End(Clock::time_point now);

  // For how long a wait looks.
  static constexpr std::chrono::microseconds kLook{50};
  // A wait with a sleep of this length might have been one without: waking up is in it.
  static constexpr std::chrono::microseconds kShort{200};
  // A look in vain before a wait that was short all the same is no reason to stop: the other side
  // slept, and will look as well when its pause is over. If all stopped whenever one does, nobody
  // would ever begin again. But not so many in a row.
  static constexpr int kTolerated = 32;
  // So many short waits in a row, and looking is tried.
  static constexpr int kShortWaits = 3;
  // For how long no wait looks after one that did in vain: the first time, and at most.
  static constexpr std::chrono::milliseconds kFirstPause{1}, kLongestPause{1000};
  // So many looks in a row that were not halve the next pause: together they save what one in vain
  // may cost, a time slice of somebody else.
  static constexpr int kForgiven = 256;

 private:
  Clock::time_point began_;
  bool looks_ = false;
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
    if (holds || now - began_ >= kLook) return holds;
  }
}

}  // namespace muster
