#include "tests/simulation/scheduler.h"

#include <algorithm>
#include <utility>

namespace muster::testing {

void Scheduler::At(Time when, std::function<void()> what) {
  events_.push({std::max(when, Clock::now()), next_number_++, std::move(what)});
}

bool Scheduler::Step() {
  if (events_.empty()) return false;
  const Event next = events_.top();
  events_.pop();
  clock_.Advance(next.when - Clock::now());
  next.what();
  return true;
}

SimulatedProcess::SimulatedProcess(Scheduler& scheduler, std::function<void()> body)
    : scheduler_(scheduler),
      body_(std::move(body)),
      fiber_(
          scheduler.outside_,
          [this](Fiber& fiber) {
            try {
              if (!killed_) body_();
            } catch (const Killed&) {
            }
            ended_ = true;
            for (;;) fiber.Suspend();
          },
          kStackBytes) {
  scheduler_.After({}, [this, turn = turn_] { Resume(turn); });
}

void SimulatedProcess::Resume(uint64_t turn) {
  if (ended_ || turn != turn_) return;
  if (suspended()) return scheduler_.At(suspended_until_, [this, turn] { Resume(turn); });
  fiber_.Resume();
}

void SimulatedProcess::Block(Time until, bool wakeable) {
  ++turn_;
  wakeable_ = wakeable;
  if (until != Time::max()) scheduler_.At(until, [this, turn = turn_] { Resume(turn); });
  fiber_.Suspend();
  wakeable_ = false;
  if (killed_) throw Killed();
}

void SimulatedProcess::Sleep(Duration duration) { Block(Clock::now() + duration, false); }

void SimulatedProcess::AwaitWake(Time until) {
  if (!std::exchange(woken_, false)) Block(until, true);
  woken_ = false;
}

void SimulatedProcess::Wake() {
  if (std::exchange(woken_, true) || !wakeable_) return;
  scheduler_.After({}, [this, turn = turn_] { Resume(turn); });
}

void SimulatedProcess::Kill() {
  if (ended_) return;
  killed_ = true;
  fiber_.Resume();
}

void SimulatedProcess::Suspend(Duration duration) {
  suspended_until_ = std::max(suspended_until_, Clock::now() + duration);
}

}  // namespace muster::testing
