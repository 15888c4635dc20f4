// Which workers are late: they keep others waiting that could do their work.
//
// A decider: no link, no clock. Owner: the dispatcher.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "ps/members/roster.h"
#include "ps/record/progress.h"
#include "ps/run/run_position.h"
#include "ps/run/run_work.h"

namespace muster {

class LateWorkers {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::steady_clock::duration;
  // Nobody is late before: a busy machine may well keep a worker from computing for a moment.
  static constexpr std::chrono::seconds kLeast{1};

  // All outlive this.
  LateWorkers(const RunPosition& state, const RunWork& work, const Roster& roster,
              const Progress& progress)
      : state_(state), work_(work), roster_(roster), progress_(progress) {}

  void BeginStep();
  // No step follows: only evaluations.
  void BeginFinalEvaluation();
  // A gradient under this order has arrived after so many seconds of the step.
  void OnGradient(const StepOrder& order, double seconds);

  // How long after the begin of a wait a worker is late.
  Duration After() const;
  // The workers that are late. The step under way was ordered, and has waited since `since`.
  std::vector<uint32_t> Find(Time now, Time since) const;
  // Some were reset for that: the next ones are given longer.
  void OnReset();

 private:
  const RunPosition& state_;
  const RunWork& work_;
  const Roster& roster_;
  const Progress& progress_;
  std::optional<double> first_part_s_;  // after which somebody had delivered its part of this step
  int resets_ = 0;                      // in this step
};

}  // namespace muster
