#include "worker/nn/backward_plan.h"

#include <utility>

#include "common/base/error.h"

namespace muster {
namespace {

class BackwardPlanner {
 public:
  BackwardPlanner(const Graph& graph, const Plan& plan)
      : layers_(graph.layers()),
        plan_(plan),
        gradient_(plan.values.size(), kNoGradient),
        missing_(plan.values.size()) {
    for (size_t v = 0; v < plan.values.size(); ++v) missing_[v] = plan.values[v].readers;
  }

  BackwardPlan Run() {
    const int logits = plan_.loss.inputs[0];
    MUSTER_CHECK(plan_.NeedsGradient(logits));
    result_.loss_gradient = NewBuffer(plan_.values[logits].elements);
    Contribute(logits, result_.loss_gradient, true);
    for (size_t i = plan_.steps.size(); i-- > 0;) {
      if (plan_.steps[i].backward) Add(static_cast<int>(i));
    }
    return std::move(result_);
  }

 private:
  int NewBuffer(int64_t elements) {
    result_.buffer_elements.push_back(elements);
    holders_.push_back(0);
    return static_cast<int>(holders_.size()) - 1;
  }

  // Called when a reader of `value` delivers its part of the gradient in `buffer`. `own`: whether
  // the buffer may be overwritten if it holds no value's gradient.
  void Contribute(int value, int buffer, bool own) {
    const PlanValue& v = plan_.values[value];
    const bool last = --missing_[value] == 0;
    const bool mask = last && v.relu && !v.relu_by_reader;
    const int before = gradient_[value];
    int to = buffer;
    if (before != kNoGradient || mask) {
      const bool free = own && holders_[buffer] == 0;
      if (!free && before != kNoGradient && holders_[before] == 1) {
        to = before;
      } else if (!free) {
        to = NewBuffer(v.elements);
      }
      BackwardStep add;
      add.to = to;
      add.a = buffer;
      add.b = before;
      add.relu_value = mask ? value : kNoGradient;
      result_.steps.push_back(add);
    }
    if (before != kNoGradient) --holders_[before];
    gradient_[value] = to;
    ++holders_[to];
  }

  void Add(int index) {
    const PlanStep& step = plan_.steps[index];
    const Layer& layer = layers_[step.layer];
    MUSTER_CHECK(missing_[step.output] == 0);
    const int gradient = std::exchange(gradient_[step.output], kNoGradient);
    --holders_[gradient];  // from here on only other values need it
    if (layer.traits().passes_gradient_on) {
      PassOn(step.inputs, gradient);
      return;
    }
    BackwardStep back;
    back.step = index;
    back.output_gradient = gradient;
    back.layer = layer.has_variables() ? step.layer : -1;
    for (size_t j = 0; j < step.inputs.size(); ++j) {
      back.input_gradients.push_back(InputGradient(step, layer, j, gradient));
    }
    result_.steps.push_back(back);
    // Without an activation, the output's gradient is also that of the input that the op added.
    const bool shares = step.fuse_add && step.activation == Activation::kNone;
    for (size_t j = 0; j < step.inputs.size(); ++j) {
      const int buffer = back.input_gradients[j];
      if (buffer != kNoGradient) Contribute(step.inputs[j], buffer, true);
    }
    if (shares) PassOn({step.inputs[1]}, gradient);
  }

  // Chooses the buffer into which the op writes the gradient of its input j.
  int InputGradient(const PlanStep& step, const Layer& layer, size_t j, int gradient) {
    if (!plan_.NeedsGradient(step.inputs[j])) return kNoGradient;
    const bool free = holders_[gradient] == 0;
    if (step.fuse_add) {
      if (j == 1 && step.activation == Activation::kNone) return kNoGradient;  // shared, see Add
      if (j == 1 && free) return gradient;
    } else if (free && layer.traits().gradient_in_place) {
      return gradient;
    }
    return NewBuffer(j == 0 && step.inputs.size() == 1 ? layer.input_shape.elements()
                                                       : plan_.values[step.inputs[j]].elements);
  }

  // Passes the gradient of a sum to all summands.
  void PassOn(const std::vector<int>& inputs, int gradient) {
    size_t wanted = 0;
    for (const int input : inputs) wanted += plan_.NeedsGradient(input);
    for (const int input : inputs) {
      if (plan_.NeedsGradient(input)) Contribute(input, gradient, --wanted == 0);
    }
  }

  const std::vector<Layer>& layers_;
  const Plan& plan_;
  BackwardPlan result_;
  std::vector<int> gradient_;  // the gradient buffer of each value so far
  std::vector<int> missing_;   // the number of missing contributions to each value
  std::vector<int> holders_;   // the number of values whose gradient lies in each buffer
};

}  // namespace

BackwardPlan MakeBackwardPlan(const Graph& graph, const Plan& plan) {
  return BackwardPlanner(graph, plan).Run();
}

}  // namespace muster
