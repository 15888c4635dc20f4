// Virtual time and the processes in it. A process is a function that runs until it waits. Meanwhile
// others run, and virtual time advances. All run in one thread, so a seed always gives the same
// events in the same order.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <queue>
#include <random>
#include <string>
#include <vector>

#include "tests/base/fiber.h"
#include "tests/protocol/scripted_clock.h"

namespace muster::testing {

using Clock = std::chrono::steady_clock;
using Time = Clock::time_point;
using Duration = Clock::duration;

// Random choices that do not depend on the standard library.
class Chance {
 public:
  explicit Chance(uint64_t seed) : engine_(seed) {}

  // Returns a value from 0 to below - 1.
  uint64_t Below(uint64_t below) { return engine_() % below; }
  int64_t Between(int64_t least, int64_t most) {
    return least + static_cast<int64_t>(Below(static_cast<uint64_t>(most - least) + 1));
  }
  Duration Between(Duration least, Duration most) {
    return Duration(Between(least.count(), most.count()));
  }
  bool OneIn(uint64_t times) { return Below(times) == 0; }

 private:
  std::mt19937_64 engine_;
};

// Events in the order of their time. Events at the same time keep the order of their creation.
class Scheduler {
 public:
  void At(Time when, std::function<void()> what);
  void After(Duration delay, std::function<void()> what) {
    At(Clock::now() + delay, std::move(what));
  }
  // Moves the clock to the next event and runs it. Returns false if there is none.
  bool Step();
  double seconds() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }

 private:
  friend class SimulatedProcess;
  struct Event {
    Time when;
    uint64_t number;
    std::function<void()> what;
    bool operator<(const Event& other) const {  // the earliest is on top
      return when != other.when ? when > other.when : number > other.number;
    }
  };

  ScriptedClock clock_;
  const Time begin_ = Clock::now();
  std::priority_queue<Event> events_;
  uint64_t next_number_ = 0;
  OutsideFibers outside_;
};

// Unwinds the stack of a killed process. Not an std::exception, so that it is never caught.
struct Killed {};

class SimulatedProcess {
 public:
  // Starts immediately, as an event. Must live until the scheduler has run its last event.
  SimulatedProcess(Scheduler& scheduler, std::function<void()> body);
  SimulatedProcess(const SimulatedProcess&) = delete;

  bool ended() const { return ended_; }
  // Called by the body.
  void Sleep(Duration duration);
  // Returns after Wake, or at that time.
  void AwaitWake(Time until);

  // Called by events.
  void Wake();
  // Destroys the objects on its stack as an exception would.
  void Kill();
  // Runs nothing for that long, as after SIGSTOP.
  void Suspend(Duration duration);
  bool suspended() const { return Clock::now() < suspended_until_; }
  Time suspended_until() const { return suspended_until_; }

 private:
  static constexpr size_t kStackBytes = 256 << 10;

  void Block(Time until, bool wakeable);
  void Resume(uint64_t turn);

  Scheduler& scheduler_;
  const std::function<void()> body_;
  Fiber fiber_;
  uint64_t turn_ = 0;  // the number of waits; an event only resumes the wait that it was made for
  bool wakeable_ = false, woken_ = false, killed_ = false, ended_ = false;
  Time suspended_until_{};
};

}  // namespace muster::testing
