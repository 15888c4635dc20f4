// Batch norm in training needs a spread: over one value its variance is 0 and it passes nothing on.
#pragma once

#include "common/graph/graph.h"
#include "common/plan/step_plan.h"

namespace muster {

// Throws Error(kUsage), naming the layer, if a step of `plan` has a slice of one sample and a batch
// norm would normalise over that alone, for want of height and width.
void CheckBatchNorms(const Graph& graph, const StepPlan& plan);

}  // namespace muster
