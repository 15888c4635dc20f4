// The optimizer of a run: kernel, state size and the coefficients of each step. The formulas are in
// proto/config.proto (Optimizer), the arithmetic in update_kernels.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/config/update_settings.h"
#include "proto/config.pb.h"
#include "ps/update/segments.h"
#include "ps/update/update_kernels.h"

namespace muster {

// The parameters of one step's update that apply to all variables. Computed once per step in
// double, and rounded to float for the kernels.
struct UpdateRule {
  const UpdateKernelTable* kernels = nullptr;
  UpdateKernel update = nullptr;  // one of `kernels`
  double learning_rate = 0;
  bool decoupled_decay = false;
  double momentum = 0;
  double beta1 = 0, beta2 = 0;  // decay of the first and second moment; RMSPROP: rho is beta2
  double correction1 = 1;       // 1 - beta1^t
  double correction2 = 1;       // 1 - beta2^t
  double epsilon = 0;
  float clip_value = 0;      // 0: no clipping
  float weigh = 1;           // multiplies the sum of slices, before clip_value
  float gradient_scale = 1;  // the factor from clip_norm
  double ema_decay = 0;      // 0: no moving average

  // The coefficients for the variables of one trained segment.
  UpdateCoefficients Coefficients(const Segment& segment) const;
};

// Immutable.
class Optimizer {
 public:
  // `kernels` must have static lifetime.
  Optimizer(const config::Optimizer& settings, const UpdateKernelTable& kernels);

  // The number of float buffers that a kernel keeps between steps, initially zero.
  size_t state_arenas() const { return static_cast<size_t>(TraitsOf(settings_).state_arrays); }
  const UpdateKernelTable& kernels() const { return kernels_; }
  // The program updates the weights; there is no rule.
  bool is_program() const { return settings_.type() == config::Optimizer::PROGRAM; }
  // 0: the norm is not clipped.
  double clip_norm() const { return settings_.clip_norm(); }

  // The rule of the `update`-th update, counted from 1. Skipped steps do not count, because they do
  // not change the moments that Adam's bias correction refers to.
  UpdateRule RuleFor(int64_t update, double learning_rate) const;

 private:
  const config::Optimizer settings_;
  const UpdateKernelTable& kernels_;
  UpdateKernel update_;
};

}  // namespace muster
