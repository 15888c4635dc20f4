// How long the server waits for each event, and since when. Time in which this process was
// suspended does not count.
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

  // Called when a wait begins: for the workers' readiness, a step, or the step after an evaluation.
  void Restart(Time now) { since_ = now; }
  // Moves the start of all waits forward by the time in which this process was suspended.
  void Extend(Clock::duration suspension);

  // The functions below return the limit in seconds if it has passed.
  std::optional<double> JoinMissed(Time now) const {
    return Missed(now, began_, limits_.start_s());
  }
  std::optional<double> ReadyMissed(Time now) const {
    return Missed(now, since_, limits_.first_step_s());
  }
  // Limits how long a run that has started may wait for more workers.
  std::optional<double> StarvedTooLong(Time now, Time since) const {
    return Missed(now, since, limits_.start_s());
  }
  // Limits the time until a member reports Ready after it joined (`came`) or was reset.
  std::optional<double> UnreadyTooLong(Time now, Time since, bool came,
                                       std::optional<double> median) const {
    return Missed(now, since, came ? limits_.first_step_s() : StepLimit(median));
  }
  // `last_block`: when the last result arrived. An evaluation may begin before the wait for it
  // does.
  std::optional<double> EvaluationMissed(Time now, Time last_block) const;
  // `median`: median duration of the steps so far, in seconds; none before the first step has
  // ended.
  std::optional<double> StepMissed(Time now, std::optional<double> median) const;

  // The limit for a step; without a median, the limit for the first step.
  double StepLimit(std::optional<double> median) const;
  Time since() const { return since_; }  // the last Restart plus suspensions since then
  // Seconds since the last Restart.
  double waited_since_restart(Time now) const {
    return std::chrono::duration<double>(now - since_).count();
  }
  double waited(Time now) const { return std::chrono::duration<double>(now - began_).count(); }

 private:
  static std::optional<double> Missed(Time now, Time since, double limit);

  const config::Deadlines limits_;
  Time began_;  // when this process started
  Time since_;
};

}  // namespace muster
