// How long the server waits for what, and since when. Time in which this process did not run counts
// against nobody.
#pragma once

#include <chrono>
#include <optional>

#include "proto/config.pb.h"

namespace muster {

class Deadlines {
 public:
  using Clock = std::chrono::steady_clock;
  using Time = Clock::time_point;

  Deadlines(const config::Deadlines& limits, Time now)
      : limits_(limits), began_(now), since_(now) {}

  // Something new is waited for from now on: the workers' readiness, a step, the step after an
  // evaluation.
  void Restart(Time now) { since_ = now; }
  // Moves the beginning of all waits on by a time in which nothing could be seen.
  void Extend(Clock::duration suspension);

  // How many seconds were allowed, if more have passed.
  std::optional<double> JoinMissed(Time now) const {
    return Missed(now, began_, limits_.start_s());
  }
  std::optional<double> ReadyMissed(Time now) const {
    return Missed(now, since_, limits_.first_step_s());
  }
  // Waiting for workers in the middle of a run.
  std::optional<double> StarvedTooLong(Time now, Time since) const {
    return Missed(now, since, limits_.start_s());
  }
  // A member is to say Ready: after it came, or after it was reset.
  std::optional<double> UnreadyTooLong(Time now, Time since, bool came,
                                       std::optional<double> median) const {
    return Missed(now, since, came ? limits_.first_step_s() : StepLimit(median));
  }
  // `last_block`: when the last result came. An evaluation may begin before the wait for it does.
  std::optional<double> EvaluationMissed(Time now, Time last_block) const;
  // `median`: of the steps so far, in seconds; nothing before the first has ended.
  std::optional<double> StepMissed(Time now, std::optional<double> median) const;

  // What a later step is given; the first one, if no median is known yet.
  double StepLimit(std::optional<double> median) const;
  Time since() const { return since_; }  // the last Restart, and gaps since then
  // Seconds, since the last Restart.
  double waited_since_restart(Time now) const {
    return std::chrono::duration<double>(now - since_).count();
  }
  double waited(Time now) const { return std::chrono::duration<double>(now - began_).count(); }

 private:
  static std::optional<double> Missed(Time now, Time since, double limit);

  const config::Deadlines limits_;
  Time began_;  // this process
  Time since_;
};

}  // namespace muster
