#include "worker/nn/program.h"

#include <algorithm>
#include <utility>

#include "common/error.h"
#include "common/trace/trace.h"

namespace muster {
namespace {

// The address of variable `index` in an arena; null where there is none (-1).
template <typename T>
T* At(const Graph& graph, int index, std::span<T> arena) {
  return index < 0 ? nullptr : arena.data() + graph.variables()[index].offset;
}

bool HasVariables(const Layer& layer) { return layer.weights >= 0 || layer.bias >= 0; }

}  // namespace

Program::Program(const Graph& graph, const Plan& plan, Backend& backend, int64_t count, Mode mode,
                 uint64_t seed)
    : graph_(graph), count_(count), loss_step_(plan.loss) {
  const auto options = [&](const PlanStep& step) {
    return OpOptions{.batch = count,
                     .mode = mode,
                     .fuse_relu = step.fuse_relu,
                     .input_gradient = step.input_gradient,
                     .input_is_relu = step.input_is_relu,
                     .seed = seed,
                     .layer = step.layer};
  };
  PlaceValues(plan, mode);
  size_t scratch = 0;
  for (const PlanStep& step : plan.steps) {
    auto op = backend.MakeOp(graph.layers()[step.layer], options(step));
    const size_t state = Reserve(op->state_floats());
    scratch = std::max(scratch, op->scratch_floats());
    ops_.push_back({step, std::move(op), state});
  }
  loss_ = backend.MakeLoss(graph.layers()[loss_step_.layer], options(loss_step_));
  loss_state_ = Reserve(loss_->state_floats());
  scratch_ = Reserve(scratch);
}

// In training every value stays until backward. In inference, and for gradients, two places are
// enough: what an op reads and what it writes.
void Program::PlaceValues(const Plan& plan, Mode mode) {
  int64_t largest = 0;
  for (const int64_t elements : plan.value_elements) largest = std::max(largest, elements);
  const size_t two[2] = {Reserve(count_ * largest), Reserve(count_ * largest)};
  gradients_[0] = two[0];
  gradients_[1] = two[1];
  for (size_t i = 0; i < plan.value_elements.size(); ++i) {
    values_.push_back(mode == Mode::kTraining ? Reserve(count_ * plan.value_elements[i])
                                              : two[i % 2]);
  }
}

size_t Program::Reserve(size_t floats) {
  return std::exchange(workspace_floats_, workspace_floats_ + (floats + 15) / 16 * 16);
}

const float* Program::Input(const PlanStep& step, const TowerInput& input, float* workspace) const {
  return step.input_value == kDataValue ? input.images : workspace + values_[step.input_value];
}

LossSums Program::Forward(const TowerInput& input, std::span<const float> weights,
                          int64_t weights_version, const Tower::LayerHook& before_layer,
                          float* workspace) {
  for (const BoundOp& bound : ops_) {
    const Layer& layer = graph_.layers()[bound.step.layer];
    if (HasVariables(layer) && before_layer) before_layer(bound.step.layer);
    const trace::Span span("forward", layer.name);
    bound.op->Forward({.input = Input(bound.step, input, workspace),
                       .output = workspace + values_[bound.step.output_value],
                       .weights = At(graph_, layer.weights, weights),
                       .bias = At(graph_, layer.bias, weights),
                       .weights_version = weights_version,
                       .state = workspace + bound.state,
                       .scratch = workspace + scratch_,
                       .sample_ids = input.sample_ids,
                       .epoch = input.epoch});
  }
  const trace::Span span("loss", graph_.layers()[loss_step_.layer].name);
  return loss_->Forward(Input(loss_step_, input, workspace), input.labels, workspace + loss_state_);
}

void Program::Backward(float loss_scale, const TowerInput& input, std::span<const float> weights,
                       int64_t weights_version, std::span<float> gradients,
                       const Tower::LayerHook& after_layer, float* workspace) {
  float* gradient = workspace + gradients_[0];  // of the output of the op that comes next
  float* other = workspace + gradients_[1];
  {
    const trace::Span span("backward", graph_.layers()[loss_step_.layer].name);
    loss_->Backward(loss_scale, Input(loss_step_, input, workspace), input.labels,
                    workspace + loss_state_, gradient);
  }
  for (auto bound = ops_.rbegin(); bound != ops_.rend() && bound->step.backward; ++bound) {
    const PlanStep& step = bound->step;
    const Layer& layer = graph_.layers()[step.layer];
    // Whoever wrote the gradient of a relu's output has taken care of the relu.
    if (std::holds_alternative<ReluSpec>(layer.spec)) continue;
    const bool in_place = step.input_value == step.output_value;
    {
      const trace::Span span("backward", layer.name);
      bound->op->Backward({.input = Input(step, input, workspace),
                           .output = workspace + values_[step.output_value],
                           .output_gradient = gradient,
                           .input_gradient = in_place ? gradient : other,
                           .weights = At(graph_, layer.weights, weights),
                           .weights_version = weights_version,
                           .weights_gradient = At(graph_, layer.weights, gradients),
                           .bias_gradient = At(graph_, layer.bias, gradients),
                           .state = workspace + bound->state,
                           .scratch = workspace + scratch_});
    }
    if (!in_place) std::swap(gradient, other);
    if (HasVariables(layer) && after_layer) after_layer(step.layer);
  }
}

}  // namespace muster
