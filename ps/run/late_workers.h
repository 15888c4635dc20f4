// Finds slow workers: those that keep idle workers waiting.
//
// Pure logic: no link, no clock. Owner: the dispatcher.
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
  // The minimum limit, because a worker may pause for a moment on a busy machine.
  static constexpr std::chrono::seconds kLeast{1};

  // All must outlive this object.
  LateWorkers(const RunPosition& state, const RunWork& work, const Roster& roster,
              const Progress& progress)
      : state_(state), work_(work), roster_(roster), progress_(progress) {}

  void BeginStep();
  // Called when only evaluations follow.
  void BeginFinalEvaluation();
  // Called when a gradient for this order has arrived, `seconds` after the start of the step.
  void OnGradient(const StepOrder& order, double seconds);

  // How long the current step would usually take, in seconds. A first step may take long for all
  // alike, so before one worker is done this is long.
  double UsualStep() const;
  // How long a wait must last before a worker counts as slow.
  Duration After() const;
  // Returns the slow workers. The current step was ordered and has waited since `since`.
  std::vector<uint32_t> Find(Time now, Time since) const;
  // Called when slow workers were reset. Extends the limit for the next ones.
  void OnReset();

 private:
  const RunPosition& state_;
  const RunWork& work_;
  const Roster& roster_;
  const Progress& progress_;
  std::optional<double> first_part_s_;  // when the first worker had delivered its part of this step
  int resets_ = 0;                      // number of resets in this step
};

}  // namespace muster
