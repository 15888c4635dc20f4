// What of a job can be counted. A set that somebody has, and a run that somebody awaits, can.
#pragma once

#include <cstdint>
#include <string>

#include "common/plan/step_plan.h"

namespace muster {

// Of a test set, each of evaluation.batch samples: who evaluates it is kept for each.
inline constexpr int64_t kMostTestBlocks = int64_t{1} << 20;

// What is too much of this plan and this test set, what is expected, and which setting helps; "" if
// nothing is.
std::string CountTrouble(const StepPlan& plan, int64_t test_samples, int64_t evaluation_batch);

}  // namespace muster
