// Limits on the size of a job, so that all its counts fit.
#pragma once

#include <cstdint>
#include <string>

#include "common/plan/step_plan.h"

namespace muster {

// The maximum number of blocks of evaluation.batch samples in a test set; the evaluating worker is
// stored for each.
inline constexpr int64_t kMostTestBlocks = int64_t{1} << 20;

// Describes what is too large in this plan and test set, the limit, and the setting to change; ""
// if nothing is.
std::string CountTrouble(const StepPlan& plan, int64_t test_samples, int64_t evaluation_batch);

}  // namespace muster
