// Optimizers, as described in proto/config.proto (Optimizer). Sums and products are rounded to
// float one by one, in the order in which they are written.
#include <algorithm>
#include <cmath>

#include "common/config/update_settings.h"
#include "tests/oracle/oracle.h"

namespace muster::oracle {
namespace {

float Single(double x) { return static_cast<float>(x); }

// The order of the gradient norm's sum is fixed, because its bits affect every weight: first the
// squares of lines of 16 are folded in half four times, then halves of halves of the lines are
// added.
double SumOfSquares(std::span<const float> line) {
  double squares[16];
  for (size_t i = 0; i < 16; ++i) squares[i] = static_cast<double>(line[i]) * line[i];
  for (size_t half = 8; half > 0; half /= 2) {
    for (size_t i = 0; i < half; ++i) squares[i] += squares[i + half];
  }
  return squares[0];
}

double Sum(std::span<const double> lines) {
  double sum = 0;
  if (lines.size() > 64)
    return Sum(lines.first(lines.size() / 2)) + Sum(lines.subspan(lines.size() / 2));
  for (const double line : lines) sum += line;
  return sum;
}

}  // namespace

Updater::Updater(const VariableLayout& layout, const config::Optimizer& settings,
                 std::vector<float> weights)
    : layout_(layout),
      settings_(settings),
      weights_(std::move(weights)),
      average_(weights_),
      first_(weights_.size()),
      second_(weights_.size()) {}

bool Updater::IsTrained(const Variable& variable) const {
  return variable.kind != Variable::Kind::kStatistic && variable.learning_rate_multiplier != 0;
}

float Updater::DecayOf(const Variable& variable) const {
  if (variable.weight_decay) return *variable.weight_decay;
  const bool decays = variable.kind == Variable::Kind::kWeights || settings_.decay_norm_and_bias();
  return decays ? settings_.weight_decay() : 0;
}

// By value first, then by the norm over all variables.
void Updater::Clip(std::vector<float>& gradient) const {
  std::vector<double> lines(gradient.size() / 16);
  const float limit = settings_.clip_value();
  for (const Variable& variable : layout_.variables()) {
    if (!IsTrained(variable)) continue;
    const std::span<float> values = std::span(gradient).subspan(variable.offset, variable.count);
    if (limit > 0) {
      for (float& g : values) g = std::clamp(g, -limit, limit);
    }
    const size_t end = variable.offset + (variable.count + 15) / 16 * 16;
    for (size_t at = variable.offset; at < end; at += 16) {
      lines[at / 16] = SumOfSquares(std::span<const float>(gradient).subspan(at, 16));
    }
  }
  if (settings_.clip_norm() <= 0) return;
  const double factor = settings_.clip_norm() / (std::sqrt(Sum(lines)) + 1e-6);
  if (factor >= 1) return;
  for (const Variable& variable : layout_.variables()) {
    if (!IsTrained(variable)) continue;
    for (float& g : std::span(gradient).subspan(variable.offset, variable.count))
      g *= Single(factor);
  }
}

float Updater::Direction(size_t i, float g) {
  using Optimizer = config::Optimizer;
  const float mu = TraitsOf(settings_).momentum, epsilon = Single(settings_.epsilon());
  // Updates the mean square of gradients with this decay.
  const auto add_square = [&](double decay) {
    second_[i] = Single(decay) * second_[i] + Single(1 - decay) * g * g;
    return std::sqrt(second_[i]);
  };
  switch (settings_.type()) {
    case Optimizer::SGD:
    case Optimizer::PROGRAM:  // has no formula
      return g;
    case Optimizer::MOMENTUM:
      return first_[i] = mu * first_[i] + g;
    case Optimizer::NESTEROV:
      first_[i] = mu * first_[i] + g;
      return g + mu * first_[i];
    case Optimizer::ADAM:
    case Optimizer::ADAMW: {
      const double beta1 = settings_.beta1(), beta2 = settings_.beta2();
      first_[i] = Single(beta1) * first_[i] + Single(1 - beta1) * g;
      const double correction = 1 - std::pow(beta2, static_cast<double>(updates_));
      return first_[i] / (add_square(beta2) / Single(std::sqrt(correction)) + epsilon);
    }
    case Optimizer::RMSPROP: {
      const float scaled = g / (add_square(settings_.rho()) + epsilon);
      if (mu <= 0) return scaled;
      return first_[i] = mu * first_[i] + scaled;
    }
  }
  return g;
}

void Updater::Update(std::span<const float> gradient, double learning_rate) {
  using Optimizer = config::Optimizer;
  std::vector<float> clipped(gradient.begin(), gradient.end());
  Clip(clipped);
  ++updates_;
  const bool adam = settings_.type() == Optimizer::ADAM || settings_.type() == Optimizer::ADAMW;
  const double correction =
      adam ? 1 - std::pow(double{settings_.beta1()}, static_cast<double>(updates_)) : 1;
  for (const Variable& variable : layout_.variables()) {
    const bool statistic = variable.kind == Variable::Kind::kStatistic;
    const double rate = learning_rate * variable.learning_rate_multiplier;
    const bool decoupled = TraitsOf(settings_).decay_type == Optimizer::DECOUPLED;
    const float decay = DecayOf(variable), coupled = decoupled ? 0 : decay;
    const float beside = decoupled ? Single(rate * decay) : 0;
    const double kept = statistic || !IsTrained(variable) ? 0 : settings_.ema_decay();
    for (size_t i = variable.offset; i < variable.offset + variable.count; ++i) {
      float& w = weights_[i];
      if (statistic) {
        w = w + variable.statistic_momentum * (clipped[i] - w);
      } else if (IsTrained(variable)) {
        const float g = clipped[i] + coupled * w;
        w = w - (Single(rate / correction) * Direction(i, g) + beside * w);
      }
      average_[i] = Single(kept) * average_[i] + Single(1 - kept) * w;
    }
  }
}

}  // namespace muster::oracle
