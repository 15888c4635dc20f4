// Plans the batches that a worker may compute.
#pragma once

#include <cstdint>

#include "common/plan/step_plan.h"
#include "worker/nn/tower.h"

namespace muster {

// Plans every batch size that a worker may compute: each slice size of the plan, because a worker
// can take over any slice, and the blocks of at most `block` samples in evaluations of sets with
// the sizes `evaluated`.
void PlanTower(const StepPlan& plan, std::initializer_list<int64_t> evaluated, int64_t block,
               Tower& tower);

}  // namespace muster
