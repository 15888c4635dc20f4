// A clock that stands until it is moved, for the thread that has one: all that it asks for the
// monotonic time. Other threads have the real one.
#pragma once

#include <chrono>

namespace muster::testing {

class ScriptedClock {
 public:
  // The time is the same for each, so that what follows repeats. One at a time in a thread.
  ScriptedClock();
  ~ScriptedClock();
  ScriptedClock(const ScriptedClock&) = delete;

  void Advance(std::chrono::nanoseconds by);
};

// Moves the real time on for good, for all threads.
void AdvanceRealTime(std::chrono::nanoseconds by);

}  // namespace muster::testing
