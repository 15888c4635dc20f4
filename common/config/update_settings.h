// Settings of the update whose value follows from other settings, as every program reads them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/config.pb.h"

namespace muster {

// The names in Optimizer.Type: "SGD", "MOMENTUM", …
std::vector<std::string> OptimizerTypes();

struct OptimizerTraits {
  // Arrays of the weights' size that the optimizer keeps from step to step: 0 to 2.
  int state_arrays = 0;
  // As given, or the default of the type. 0 for types without momentum.
  float momentum = 0;
  config::Optimizer::DecayType decay_type = config::Optimizer::COUPLED;
};
OptimizerTraits TraitsOf(const config::Optimizer& optimizer);

// Spells out momentum and decay_type, so that a written config says what is used.
void ResolveOptimizer(config::Optimizer& optimizer);

// learning_rate.base, scaled with the number of workers as learning_rate.scaling says.
double ScaledBase(const config::LearningRate& rate, uint32_t workers);

}  // namespace muster
