#include "ps/update/optimizer.h"

#include <cmath>
#include <string>

#include "common/base/error.h"
#include "common/config/update_settings.h"

namespace muster {
namespace {

UpdateKernel Choose(const config::Optimizer& settings, const UpdateKernelTable& kernels) {
  if (settings.type() == config::Optimizer::PROGRAM) return nullptr;
  const std::string& type = config::Optimizer::Type_Name(settings.type());
  for (const NamedUpdateKernel& one : kernels.updates) {
    if (one.optimizer != nullptr && type == one.optimizer) return one.kernel;
  }
  MUSTER_CHECK(false);
  return nullptr;
}

bool IsAdam(config::Optimizer::Type type) {
  return type == config::Optimizer::ADAM || type == config::Optimizer::ADAMW;
}

}  // namespace

UpdateCoefficients UpdateRule::Coefficients(const Segment& segment) const {
  const double rate = learning_rate * segment.rate_multiplier;
  const double decay = segment.weight_decay;
  return {
      .rate = static_cast<float>(rate / correction1),
      .coupled_decay = decoupled_decay ? 0 : segment.weight_decay,
      .decoupled_decay = decoupled_decay ? static_cast<float>(rate * decay) : 0,
      .momentum = static_cast<float>(momentum),
      .beta1 = static_cast<float>(beta1),
      .one_minus_beta1 = static_cast<float>(1 - beta1),
      .beta2 = static_cast<float>(beta2),
      .one_minus_beta2 = static_cast<float>(1 - beta2),
      .root_correction2 = static_cast<float>(std::sqrt(correction2)),
      .epsilon = static_cast<float>(epsilon),
  };
}

Optimizer::Optimizer(const config::Optimizer& settings, const UpdateKernelTable& kernels)
    : settings_(settings), kernels_(kernels), update_(Choose(settings, kernels)) {}

UpdateRule Optimizer::RuleFor(int64_t update, double learning_rate) const {
  MUSTER_CHECK(update >= 1);
  const OptimizerTraits traits = TraitsOf(settings_);
  UpdateRule rule{
      .kernels = &kernels_,
      .update = update_,
      .learning_rate = learning_rate,
      .decoupled_decay = traits.decay_type == config::Optimizer::DECOUPLED,
      .momentum = traits.momentum,
      .beta1 = settings_.beta1(),
      .beta2 = settings_.beta2(),
      .epsilon = settings_.epsilon(),
      .clip_value = settings_.clip_value(),
      .ema_decay = settings_.ema_decay(),
  };
  if (settings_.type() == config::Optimizer::RMSPROP) rule.beta2 = settings_.rho();
  if (IsAdam(settings_.type())) {
    const auto t = static_cast<double>(update);
    rule.correction1 = 1 - std::pow(rule.beta1, t);
    rule.correction2 = 1 - std::pow(rule.beta2, t);
  }
  return rule;
}

}  // namespace muster
