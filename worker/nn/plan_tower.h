// Which batches a worker will ask of its tower.
#pragma once

#include <cstdint>

#include "common/plan/step_plan.h"
#include "worker/nn/tower.h"

namespace muster {

// Plans every batch that a worker may compute: each slice size of the plan, since any slice can
// become its own, and the blocks of `block` samples, at most, of evaluations on sets of these
// sizes.
void PlanTower(const StepPlan& plan, std::initializer_list<int64_t> evaluated, int64_t block,
               Tower& tower);

}  // namespace muster
