// Where a run is.
//
// Owner: the run, which changes it; those that it consults read it.
#pragma once

#include <cstdint>

#include "common/plan/step_plan.h"

namespace muster {

struct RunPosition {
  enum class Phase {
    kGathering,  // workers join
    kPreparing,  // they were welcomed, and make what a step needs
    kTraining,
    kFinishing,  // no more steps will be ordered; the last evaluations may go on
    kDone,
  };
  Phase phase = Phase::kGathering;
  StepPlan plan;
  int64_t step = 0;              // W(step) is the newest version that is whole
  bool losses_complete = false;  // all losses of the step are in, and its update has not begun

  bool has_begun() const { return phase >= Phase::kTraining; }
  bool finishing() const { return phase >= Phase::kFinishing; }
};

}  // namespace muster
