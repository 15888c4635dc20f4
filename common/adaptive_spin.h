// Waiting for something that another process does to memory: a short look before going to sleep,
// if the last waits were short, as adaptive mutexes do and Linux' haltpoll.
//
// Sleeping and being woken costs two changes of context and, on a virtual machine whose core has
// gone idle, tens of microseconds. Looking costs a core; it gives it away (sched_yield) after every
// look, so that more waiting threads than cores do not hinder one another, and it is bounded: 50 µs
// a wait. A look that was in vain, or after which the core did not come back soon because others
// compute, is not tried again for a while, which doubles each time.
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
  void Slept() { Learn(Clock::now() - began_); }

  // The policy alone: whether the wait that begins now looks, and how long it was in the end.
  bool Begin() { return looks_ = pause_left_ == 0 && short_waits_ >= kShortWaits; }
  void Learn(Duration took);

  // For how long a wait looks.
  static constexpr std::chrono::microseconds kLook{50};
  // A wait with a sleep of this length might have been one without: waking up is in it.
  static constexpr std::chrono::microseconds kShort{200};
  // So many short waits in a row, and looking is tried.
  static constexpr int kShortWaits = 3;
  // Waits without a look after one that was in vain: the first time, and at most.
  static constexpr int kFirstPause = 8, kLongestPause = 1024;
  // So many looks in a row that were not halve the next pause.
  static constexpr int kForgiven = 64;

 private:
  Clock::time_point began_;
  bool looks_ = false;
  int short_waits_ = 0;
  int pause_ = kFirstPause, pause_left_ = 0;
  int successes_ = 0;
};

template <typename Ready>
bool AdaptiveSpin::Spin(const Ready& ready) {
  if (ready()) return true;
  began_ = Clock::now();
  if (!Begin()) return false;
  do {
    ::sched_yield();
    if (!ready()) continue;
    Learn(Clock::now() - began_);
    return true;
  } while (Clock::now() - began_ < kLook);
  return false;
}

}  // namespace muster
