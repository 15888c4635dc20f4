#include "worker/nn/plan.h"

#include <utility>

#include "common/error.h"

namespace muster {
namespace {

template <typename Spec>
bool Is(const Layer& layer) {
  return std::holds_alternative<Spec>(layer.spec);
}

bool MultipliesWeights(const Layer& layer) { return Is<Conv2dSpec>(layer) || Is<DenseSpec>(layer); }

// Follows the chain and keeps what is known about the value at its end.
class Planner {
 public:
  Planner(const Graph& graph, Mode mode) : layers_(graph.layers()), mode_(mode) {}

  Plan Run() {
    for (size_t i = 0; i < layers_.size(); ++i) Add(static_cast<int>(i));
    return std::move(plan_);
  }

 private:
  void Add(int index) {
    const Layer& layer = layers_[index];
    MUSTER_CHECK(layer.input == index - 1);  // Graph::Build admits chains only
    if (Is<FlattenSpec>(layer)) return;
    if (Is<DropoutSpec>(layer) && mode_ == Mode::kInference) return;
    if (Is<ReluSpec>(layer) && FuseRelu()) return;

    PlanStep step;
    step.layer = index;
    step.input_value = step.output_value = value_;
    step.input_is_relu = value_is_relu_;
    step.input_gradient = trained_upstream_;
    trained_upstream_ |= layer.weights >= 0 || layer.bias >= 0;
    step.backward = trained_upstream_;
    if (Is<SoftmaxCrossEntropySpec>(layer)) {
      plan_.loss = step;
      return;
    }
    const bool in_place = (Is<ReluSpec>(layer) || Is<DropoutSpec>(layer)) && may_overwrite_;
    if (!in_place) {
      step.output_value = value_ = static_cast<int>(plan_.value_elements.size());
      plan_.value_elements.push_back(layer.output_shape.elements());
    }
    // The backward of these does not look at what they made.
    may_overwrite_ = MultipliesWeights(layer) || mode_ == Mode::kInference;
    value_is_relu_ = Is<ReluSpec>(layer);
    plan_.steps.push_back(step);
  }

  // Makes a relu part of the op before it, if that can do it.
  bool FuseRelu() {
    if (plan_.steps.empty()) return false;
    PlanStep& last = plan_.steps.back();
    if (!MultipliesWeights(layers_[last.layer])) return false;
    last.fuse_relu = value_is_relu_ = true;
    return true;
  }

  const std::vector<Layer>& layers_;
  const Mode mode_;
  Plan plan_;
  int value_ = kDataValue;
  bool value_is_relu_ = false;
  bool may_overwrite_ = false;
  bool trained_upstream_ = false;
};

}  // namespace

Plan MakePlan(const Graph& graph, Mode mode) { return Planner(graph, mode).Run(); }

}  // namespace muster
