// The way back through a plan: in which buffer each value's gradient is collected, who may write
// into whose, and where contributions are added up.
//
// A gradient that reaches a sum is, as it is, that of all summands: they share the buffer, which
// nobody then overwrites while another still needs it. A value that several steps read gets a
// contribution from each, last reader first; each but the first is added. A relu's derivative is
// applied once, when the last contribution is there, unless the only reader applies it itself.
#pragma once

#include <cstdint>
#include <vector>

#include "worker/nn/plan.h"

namespace muster {

constexpr int kNoGradient = -1;

// One thing to do, in this order. Gradients are named by their buffers.
struct BackwardStep {
  // ≥ 0: the op of this step of the plan.
  int step = -1;
  int output_gradient = kNoGradient;
  std::vector<int> input_gradients;  // one per input, kNoGradient where none is wanted
  // step < 0: to = a + b (b may be kNoGradient), masked by the relu whose output is relu_value
  // (unless that is kNoGradient).
  int to = kNoGradient, a = kNoGradient, b = kNoGradient, relu_value = kNoGradient;
  int layer = -1;  // the layer that is done after this, for the hook; -1: none
};

struct BackwardPlan {
  int loss_gradient = kNoGradient;  // where the loss writes
  std::vector<BackwardStep> steps;
  std::vector<int64_t> buffer_elements;  // per sample
};

// Makes the backward plan for a training plan.
BackwardPlan MakeBackwardPlan(const Graph& graph, const Plan& plan);

}  // namespace muster
