#include "common/config/update_settings.h"

#include <cmath>

namespace muster {

float MomentumOf(const config::Optimizer& optimizer) {
  switch (optimizer.type()) {
    case config::Optimizer::MOMENTUM:
    case config::Optimizer::NESTEROV:
      return optimizer.momentum();
    case config::Optimizer::RMSPROP:
      return optimizer.has_momentum() ? optimizer.momentum() : 0;
    case config::Optimizer::SGD:
    case config::Optimizer::ADAM:
    case config::Optimizer::ADAMW:
      return 0;
  }
  return 0;
}

config::Optimizer::DecayType DecayTypeOf(const config::Optimizer& optimizer) {
  if (optimizer.has_decay_type()) return optimizer.decay_type();
  return optimizer.type() == config::Optimizer::ADAMW ? config::Optimizer::DECOUPLED
                                                      : config::Optimizer::COUPLED;
}

int OptimizerState(const config::Optimizer& optimizer) {
  switch (optimizer.type()) {
    case config::Optimizer::SGD:
      return 0;
    case config::Optimizer::MOMENTUM:
    case config::Optimizer::NESTEROV:
      return 1;
    case config::Optimizer::ADAM:
    case config::Optimizer::ADAMW:
      return 2;
    case config::Optimizer::RMSPROP:
      return MomentumOf(optimizer) > 0 ? 2 : 1;
  }
  return 0;
}

void ResolveOptimizer(config::Optimizer& optimizer) {
  if (optimizer.type() == config::Optimizer::RMSPROP) optimizer.set_momentum(MomentumOf(optimizer));
  optimizer.set_decay_type(DecayTypeOf(optimizer));
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
