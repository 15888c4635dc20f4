// An independent implementation of the formulas in config.proto (Optimizer), in double precision.
#pragma once

#include <cmath>
#include <cstdint>

#include "proto/config.pb.h"

namespace muster::testing {

struct OptimizerReference {
  const config::Optimizer& o;
  double w, m = 0, v = 0;

  // Update number t, counting from 1.
  void Step(int64_t t, double rate, double gradient, double decay = 0) {
    const bool decoupled =
        o.decay_type() == config::Optimizer::DECOUPLED || o.type() == config::Optimizer::ADAMW;
    const double g = gradient + (decoupled ? 0 : decay * w);
    const double before = w;
    switch (o.type()) {
      case config::Optimizer::SGD:
        w -= rate * g;
        break;
      case config::Optimizer::MOMENTUM:
        m = o.momentum() * m + g;
        w -= rate * m;
        break;
      case config::Optimizer::NESTEROV:
        m = o.momentum() * m + g;
        w -= rate * (g + o.momentum() * m);
        break;
      case config::Optimizer::ADAM:
      case config::Optimizer::ADAMW: {
        m = o.beta1() * m + (1 - o.beta1()) * g;
        v = o.beta2() * v + (1 - o.beta2()) * g * g;
        const double t_ = static_cast<double>(t);
        w -= rate * (m / (1 - std::pow(o.beta1(), t_))) /
             (std::sqrt(v / (1 - std::pow(o.beta2(), t_))) + o.epsilon());
        break;
      }
      case config::Optimizer::RMSPROP:
        v = o.rho() * v + (1 - o.rho()) * g * g;
        m = (o.has_momentum() ? o.momentum() : 0) * m + g / (std::sqrt(v) + o.epsilon());
        w -= rate * m;
        break;
      case config::Optimizer::PROGRAM:  // has no formula
        break;
    }
    if (decoupled) w -= rate * decay * before;
  }
};

}  // namespace muster::testing
