// Derives update settings from other settings.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/config.pb.h"

namespace muster {

// The names in Optimizer.Type that have a formula: "SGD", "MOMENTUM", …
std::vector<std::string> OptimizerTypes();

struct OptimizerTraits {
  // The number of arrays, each as large as the weights, that the optimizer keeps between steps: 0
  // to 2.
  int state_arrays = 0;
  // The configured value or the type's default. 0 for types without momentum.
  float momentum = 0;
  config::Optimizer::DecayType decay_type = config::Optimizer::COUPLED;
};
// Whether the server scales the loss (worker.precision FP16).
bool ScalesLoss(const config::Config& config);
// Whether a gradient that is not finite may leave the weights unchanged. The whole gradient must
// then be known before the first update.
bool MaySkipSteps(const config::Config& config);

OptimizerTraits TraitsOf(const config::Optimizer& optimizer);

// Spells out momentum and decay_type, so that a written config shows the values in use.
void ResolveOptimizer(config::Optimizer& optimizer);

// learning_rate.base, scaled by the number of workers according to learning_rate.scaling.
double ScaledBase(const config::LearningRate& rate, uint32_t workers);

}  // namespace muster
