// Limits on the size of a job, so that all its counts fit.
#pragma once

#include <cstdint>
#include <string>

#include "common/plan/step_plan.h"

namespace muster {

// The maximum number of blocks in a test set. The server stores a worker for each block.
inline constexpr int64_t kMostTestBlocks = int64_t{1} << 20;

// Describes what is too large in this plan or test set, and which setting to change. Returns "" if
// everything fits.
std::string CountTrouble(const StepPlan& plan, int64_t test_samples, int64_t evaluation_batch);

}  // namespace muster
