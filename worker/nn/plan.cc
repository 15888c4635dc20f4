#include "worker/nn/plan.h"

#include <algorithm>
#include <utility>

#include "common/base/error.h"

namespace muster {
namespace {

template <typename... Specs>
bool IsAny(const Layer& layer) {
  return (std::holds_alternative<Specs>(layer.spec) || ...);
}

// Ops that can multiply the gradient they write by the derivative of a relu before them.
bool AppliesReluBefore(const Layer& layer) {
  return IsAny<Conv2dSpec, DenseSpec, PoolSpec, LrnSpec, DropoutSpec, SoftmaxCrossEntropySpec,
               MeanSquaredErrorSpec>(layer);
}

// Goes through the layers in order and keeps what is known about the values so far.
class Planner {
 public:
  Planner(const Graph& graph, Mode mode)
      : layers_(graph.layers()), mode_(mode), value_of_(layers_.size()) {}

  Plan Run() {
    CountReaders();
    for (size_t i = 0; i < layers_.size(); ++i) Add(static_cast<int>(i));
    for (PlanValue& value : plan_.values) value.relu_by_reader &= value.relu && value.readers == 1;
    return std::move(plan_);
  }

 private:
  // Layers that move and compute nothing: their output is their input.
  bool IsNothing(const Layer& layer) const {
    return IsAny<FlattenSpec>(layer) || (IsAny<DropoutSpec>(layer) && mode_ == Mode::kInference);
  }

  // How many inputs of layers that do something each layer's output is.
  void CountReaders() {
    readers_.assign(layers_.size(), 0);
    for (size_t i = layers_.size(); i-- > 0;) {
      const int readers = IsNothing(layers_[i]) ? readers_[i] : 1;
      for (const int input : layers_[i].inputs) {
        if (input >= 0) readers_[input] += readers;
      }
    }
  }

  void Add(int index) {
    const Layer& layer = layers_[index];
    PlanStep step;
    step.layer = index;
    for (const int input : layer.inputs)
      step.inputs.push_back(input < 0 ? kDataValue : value_of_[input]);
    if (IsNothing(layer)) {
      value_of_[index] = step.inputs[0];
      return;
    }
    if (FuseActivation(step) || FuseAdd(step)) return;

    step.backward = layer.has_variables();
    for (const int input : step.inputs) step.backward |= plan_.NeedsGradient(input);
    NoteReads(step);
    if (layer.is_loss()) {
      plan_.loss = step;
      return;
    }
    PlanValue value;
    value.elements = layer.output_shape.elements();
    value.readers = readers_[index];
    value.gradient = step.backward;
    value.relu = IsAny<ReluSpec>(layer);
    step.output = value_of_[index] = static_cast<int>(plan_.values.size());
    value.place = MayOverwriteInput(step) ? plan_.values[step.inputs[0]].place : step.output;
    plan_.values.push_back(value);
    plan_.steps.push_back(std::move(step));
  }

  // The only reader of a relu's output is asked to apply its derivative; see Run.
  void NoteReads(const PlanStep& step) {
    for (const int input : step.inputs) {
      if (input >= 0) plan_.values[input].relu_by_reader = AppliesReluBefore(layers_[step.layer]);
    }
  }

  // A value and the step that makes it are added together.
  PlanStep& MakerOf(int value) {
    PlanStep& step = plan_.steps[static_cast<size_t>(value)];
    MUSTER_CHECK(step.output == value);
    return step;
  }

  // The step that made `value`, if it is still possible to change what it makes: nobody else reads
  // it, and it is nothing but its own result.
  PlanStep* MakerOfOwn(int value) {
    if (value < 0 || plan_.values[value].readers != 1) return nullptr;
    PlanStep& step = MakerOf(value);
    return step.activation == Activation::kNone ? &step : nullptr;
  }

  // The maker's output becomes that of layer `index`.
  void TakeOver(int index, PlanStep& maker) {
    value_of_[index] = maker.output;
    plan_.values[maker.output].readers = readers_[index];
  }

  bool FuseActivation(const PlanStep& step) {
    const Layer& layer = layers_[step.layer];
    if (!IsAny<ReluSpec, Relu6Spec>(layer)) return false;
    PlanStep* const maker = MakerOfOwn(step.inputs[0]);
    if (maker == nullptr) return false;
    const bool normalises = IsAny<BatchNormSpec>(layers_[maker->layer]);
    const bool is_relu = IsAny<ReluSpec>(layer);
    if (!normalises && !(is_relu && IsAny<Conv2dSpec, DenseSpec, AddSpec>(layers_[maker->layer]))) {
      return false;
    }
    maker->activation = is_relu ? Activation::kRelu : Activation::kRelu6;
    TakeOver(step.layer, *maker);
    plan_.values[maker->output].relu = !normalises;
    return true;
  }

  // The other summand exists when the later batch norm runs, whoever made it.
  bool FuseAdd(const PlanStep& step) {
    if (!IsAny<AddSpec>(layers_[step.layer]) || step.inputs.size() != 2) return false;
    const auto [other, later] = std::minmax(step.inputs[0], step.inputs[1]);
    PlanStep* const maker = MakerOfOwn(later);
    if (maker == nullptr || maker->fuse_add || !IsAny<BatchNormSpec>(layers_[maker->layer])) {
      return false;
    }
    maker->fuse_add = true;
    maker->inputs.push_back(other);
    if (other >= 0) plan_.values[other].relu_by_reader = false;
    TakeOver(step.layer, *maker);
    return true;
  }

  bool MayOverwriteInput(const PlanStep& step) {
    if (!IsAny<ReluSpec, Relu6Spec, DropoutSpec>(layers_[step.layer])) return false;
    const int input = step.inputs[0];
    if (input < 0 || plan_.values[input].readers != 1) return false;
    if (mode_ == Mode::kInference) return true;
    const PlanStep& maker = MakerOf(input);
    const Layer& layer = layers_[maker.layer];
    // A relu's output is needed by whoever applies its derivative; a fused one is looked at by
    // dropout only, which keeps its signs.
    return !BackwardReadsOutput(layer, maker, true) && !IsAny<ReluSpec>(layer) &&
           (!plan_.values[input].relu || IsAny<DropoutSpec>(layers_[step.layer]));
  }

  const std::vector<Layer>& layers_;
  const Mode mode_;
  Plan plan_;
  std::vector<int> value_of_;  // each layer's output
  std::vector<int> readers_;
};

}  // namespace

Plan MakePlan(const Graph& graph, Mode mode) { return Planner(graph, mode).Run(); }

bool BackwardReadsInput(const Layer& layer, bool input_is_relu) {
  if (const auto* pool = std::get_if<PoolSpec>(&layer.spec)) {
    return input_is_relu && pool->kind == PoolSpec::Kind::kAverage;
  }
  return IsAny<Conv2dSpec, DenseSpec, LrnSpec, BatchNormSpec>(layer);
}

bool BackwardReadsOutput(const Layer& layer, const PlanStep& step, bool input_is_relu) {
  if (IsAny<BatchNormSpec>(layer)) return step.fuse_add && step.activation != Activation::kNone;
  if (IsAny<DropoutSpec>(layer)) return input_is_relu;
  return IsAny<Relu6Spec, SoftmaxSpec>(layer);
}

}  // namespace muster
