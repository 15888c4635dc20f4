// Settings of the update whose value follows from other settings, as every program reads them.
#pragma once

#include <cstdint>

#include "proto/config.pb.h"

namespace muster {

// As given, or the default of the type. 0 for types without momentum.
float MomentumOf(const config::Optimizer& optimizer);
config::Optimizer::DecayType DecayTypeOf(const config::Optimizer& optimizer);

// Spells both out, so that a written config says what is used.
void ResolveOptimizer(config::Optimizer& optimizer);

// Arrays of the weights' size that the optimizer keeps from step to step: 0 to 2. What the server
// holds, and what the launcher says of its memory.
int OptimizerState(const config::Optimizer& optimizer);

// learning_rate.base, scaled with the number of workers as learning_rate.scaling says.
double ScaledBase(const config::LearningRate& rate, uint32_t workers);

}  // namespace muster
