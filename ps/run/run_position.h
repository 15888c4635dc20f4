// The position of a run.
//
// Owner: the run, which changes it; other parts only read it.
#pragma once

#include <cstdint>

#include "common/plan/step_plan.h"
#include "ps/update/loss_scale.h"

namespace muster {

struct RunPosition {
  enum class Phase {
    kGathering,  // workers join
    kPreparing,  // workers were welcomed and prepare their first step
    kTraining,
    kFinishing,  // no more steps will be ordered; evaluations may still run
    kDone,
  };
  Phase phase = Phase::kGathering;
  StepPlan plan;
  int64_t step = 0;  // W(step) is the newest complete version
  bool losses_complete =
      false;  // all losses of the step have arrived, and its update has not begun

  // The scale of `step` or, when its gradient is known, of the next step.
  LossScale loss_scale;

  bool has_begun() const { return phase >= Phase::kTraining; }
  bool finishing() const { return phase >= Phase::kFinishing; }
};

}  // namespace muster
