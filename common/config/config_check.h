// Checks that go beyond a field's type: ranges, required fields, contradictions.
#pragma once

#include <cstdint>
#include <string>

#include "common/config/config_errors.h"
#include "common/graph/graph.h"
#include "common/plan/step_plan.h"
#include "proto/config_fwd.h"

namespace muster {

// Throws Error(kUsage) with a line for each mistake: location, key, expected value, actual value.
// `errors` contains the mistakes found while reading the config, which are thrown with the others.
void CheckConfig(const config::Config& config, ConfigErrors& errors);

// Checks optimizer, learning rate, data and evaluation. Adds every mistake to `errors`.
void CheckTraining(const config::Config& config, ConfigErrors& errors);

// Describes what is wrong with the traced steps in a run of `steps` steps; "" if nothing is.
std::string TraceTrouble(const config::Run& run, int64_t steps);

// Throws Error(kUsage) that names the layer if a step of `plan` has a slice of one sample and the
// input of a batch norm is 1x1. In training, batch norm over a single value has variance 0 and
// passes no gradient.
void CheckBatchNorms(const Graph& graph, const StepPlan& plan);

}  // namespace muster
