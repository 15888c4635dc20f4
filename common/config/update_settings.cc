#include "common/config/update_settings.h"

#include <cmath>

namespace muster {

std::vector<std::string> OptimizerTypes() {
  const auto* types = config::Optimizer::Type_descriptor();
  std::vector<std::string> names;
  for (int i = 0; i < types->value_count(); ++i) {
    if (types->value(i)->number() != config::Optimizer::PROGRAM)
      names.push_back(types->value(i)->name());
  }
  return names;
}

bool ScalesLoss(const config::Config& config) {
  return config.worker().precision() == config::Worker::FP16;
}

bool MaySkipSteps(const config::Config& config) {
  return config.run().on_nonfinite() == config::Run::SKIP_STEP || ScalesLoss(config);
}

OptimizerTraits TraitsOf(const config::Optimizer& optimizer) {
  OptimizerTraits traits;
  switch (optimizer.type()) {
    case config::Optimizer::SGD:
    case config::Optimizer::PROGRAM:
      break;
    case config::Optimizer::MOMENTUM:
    case config::Optimizer::NESTEROV:
      traits = {.state_arrays = 1, .momentum = optimizer.momentum()};
      break;
    case config::Optimizer::ADAM:
      traits = {.state_arrays = 2};
      break;
    case config::Optimizer::ADAMW:
      traits = {.state_arrays = 2, .decay_type = config::Optimizer::DECOUPLED};
      break;
    case config::Optimizer::RMSPROP:
      traits.momentum = optimizer.has_momentum() ? optimizer.momentum() : 0;
      traits.state_arrays = traits.momentum > 0 ? 2 : 1;
  }
  if (optimizer.has_decay_type()) traits.decay_type = optimizer.decay_type();
  return traits;
}

void ResolveOptimizer(config::Optimizer& optimizer) {
  const OptimizerTraits traits = TraitsOf(optimizer);
  if (optimizer.type() == config::Optimizer::RMSPROP) optimizer.set_momentum(traits.momentum);
  optimizer.set_decay_type(traits.decay_type);
}

double ScaledBase(const config::LearningRate& rate, uint32_t workers) {
  const double factor = static_cast<double>(workers) / rate.base_workers();
  switch (rate.scaling()) {
    case config::LearningRate::NONE:
      return rate.base();
    case config::LearningRate::LINEAR:
      return rate.base() * factor;
    case config::LearningRate::SQRT:
      return rate.base() * std::sqrt(factor);
  }
  return rate.base();
}

}  // namespace muster
