// A clock that only moves when told to, for the thread that creates it: replaces all reads of the
// monotonic time. Other threads have the real time.
#pragma once

#include <chrono>

namespace muster::testing {

class ScriptedClock {
 public:
  // Starts at the same time for each, for reproducibility. A thread has at most one.
  ScriptedClock();
  ~ScriptedClock();
  ScriptedClock(const ScriptedClock&) = delete;

  void Advance(std::chrono::nanoseconds by);
};

// Advances the real time of all threads permanently.
void AdvanceRealTime(std::chrono::nanoseconds by);

}  // namespace muster::testing
