// The backward pass of a plan: the gradient buffer of each value, which buffers are shared or
// reused, and where contributions are added.
//
// The gradient of a sum is also the gradient of all its summands. The summands share its buffer,
// which is not overwritten while one of them still needs it. A value that several steps read gets a
// contribution from each, starting with the last reader. The first contribution is stored, and the
// others are added. A relu's derivative is applied once, after the last contribution, unless the
// only reader applies it.
#pragma once

#include <cstdint>
#include <vector>

#include "worker/nn/plan.h"

namespace muster {

constexpr int kNoGradient = -1;

// One operation of the backward pass. Gradients are identified by their buffers.
struct BackwardStep {
  // ≥ 0: run the op of this step of the plan.
  int step = -1;
  int output_gradient = kNoGradient;
  std::vector<int> input_gradients;  // one for each input; kNoGradient if not needed
  // step < 0: to = a + b (b may be kNoGradient), masked by the relu whose output is relu_value
  // (unless that is kNoGradient).
  int to = kNoGradient, a = kNoGradient, b = kNoGradient, relu_value = kNoGradient;
  int layer = -1;  // the layer that is complete after this step, for the hook; -1: none
};

struct BackwardPlan {
  int loss_gradient = kNoGradient;  // written by the loss
  std::vector<BackwardStep> steps;
  std::vector<int64_t> buffer_elements;  // per sample
};

// `plan` must be a plan for training.
BackwardPlan MakeBackwardPlan(const Graph& graph, const Plan& plan);

}  // namespace muster
