// Checks that need more than one field's type: ranges, required fields, contradictions.
#pragma once

#include <cstdint>
#include <string>

#include "common/config/config_errors.h"
#include "common/graph/graph.h"
#include "common/plan/step_plan.h"
#include "proto/config_fwd.h"

namespace muster {

// Throws Error(kUsage) with a line for each mistake: location, key, what was expected, what is
// there. `errors` holds those of reading the config, which are thrown with the others.
void CheckConfig(const config::Config& config, ConfigErrors& errors);

// Its part for optimizer, learning rate, data and evaluation; notes every mistake.
void CheckTraining(const config::Config& config, ConfigErrors& errors);

// What is wrong with the steps that are to be traced in a run of so many, or "".
std::string TraceTrouble(const config::Run& run, int64_t steps);

// Batch norm in training needs a spread: over one value its variance is 0 and it passes nothing on.
// Throws Error(kUsage), naming the layer, if a step of `plan` has a slice of one sample and a batch
// norm would normalise over that alone, for want of height and width.
void CheckBatchNorms(const Graph& graph, const StepPlan& plan);

}  // namespace muster
