#include "worker/nn/plan.h"

#include <algorithm>
#include <utility>

#include "common/base/error.h"

namespace muster {
namespace {

using Fuses = LayerTraits::Fuses;
using Reads = LayerTraits::Reads;

bool DoesRead(Reads reads, bool input_is_relu) {
  return reads == Reads::kAlways || (reads == Reads::kAfterRelu && input_is_relu);
}

// Visits the layers in order and records the values so far.
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
  // Whether a layer neither moves nor computes anything, so that its output is its input.
  bool IsNothing(const Layer& layer) const {
    const LayerTraits traits = layer.traits();
    return traits.moves_nothing || (traits.moves_nothing_in_inference && mode_ == Mode::kInference);
  }

  // Counts the inputs that read each layer's output, except those of layers that do nothing.
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

    step.backward = layer.has_variables() && !layer.frozen;
    for (const int input : step.inputs) step.backward |= plan_.NeedsGradient(input);
    NoteReads(step);
    if (layer.traits().is_loss) {
      plan_.loss = step;
      return;
    }
    PlanValue value;
    value.elements = layer.output_shape.elements();
    value.readers = readers_[index];
    value.gradient = step.backward;
    value.relu = layer.traits().activation == Activation::kRelu;
    step.output = value_of_[index] = static_cast<int>(plan_.values.size());
    value.place = MayOverwriteInput(step) ? plan_.values[step.inputs[0]].place : step.output;
    plan_.values.push_back(value);
    plan_.steps.push_back(std::move(step));
  }

  // If a relu's output has a single reader, that reader may apply the relu's derivative (see Run).
  void NoteReads(const PlanStep& step) {
    for (const int input : step.inputs) {
      if (input >= 0) plan_.values[input].relu_by_reader = TraitsOf(step).applies_relu_before;
    }
  }

  // Each step adds one value, so a step and its value have the same index.
  PlanStep& MakerOf(int value) {
    PlanStep& step = plan_.steps[static_cast<size_t>(value)];
    MUSTER_CHECK(step.output == value);
    return step;
  }

  // Returns the step that made `value`, or null if the step's output must not change because
  // several inputs read it or it already includes an activation.
  PlanStep* MakerOfOwn(int value) {
    if (value < 0 || plan_.values[value].readers != 1) return nullptr;
    PlanStep& step = MakerOf(value);
    return step.activation == Activation::kNone ? &step : nullptr;
  }

  // Makes the maker's output the output of layer `index`.
  void TakeOver(int index, PlanStep& maker) {
    value_of_[index] = maker.output;
    plan_.values[maker.output].readers = readers_[index];
  }

  LayerTraits TraitsOf(const PlanStep& step) const { return layers_[step.layer].traits(); }

  bool FuseActivation(const PlanStep& step) {
    const Activation activation = TraitsOf(step).activation;
    if (activation == Activation::kNone) return false;
    PlanStep* const maker = MakerOfOwn(step.inputs[0]);
    if (maker == nullptr) return false;
    const Fuses fuses = TraitsOf(*maker).fuses;
    const bool fits =
        fuses == Fuses::kEverything || (fuses == Fuses::kRelu && activation == Activation::kRelu);
    if (!fits) return false;
    maker->activation = activation;
    TakeOver(step.layer, *maker);
    plan_.values[maker->output].relu = fuses == Fuses::kRelu;
    return true;
  }

  // Fuses a sum into the batch norm that makes the later summand. When this batch norm runs, the
  // other summand already exists.
  bool FuseAdd(const PlanStep& step) {
    const bool is_sum = std::holds_alternative<AddSpec>(layers_[step.layer].spec);
    if (!is_sum || step.inputs.size() != 2) return false;
    const auto [other, later] = std::minmax(step.inputs[0], step.inputs[1]);
    PlanStep* const maker = MakerOfOwn(later);
    if (maker == nullptr || maker->fuse_add) return false;
    if (TraitsOf(*maker).fuses != Fuses::kEverything) return false;
    maker->fuse_add = true;
    maker->inputs.push_back(other);
    maker->backward |= plan_.NeedsGradient(other);  // the norm itself may be frozen
    plan_.values[maker->output].gradient = maker->backward;
    if (other >= 0) plan_.values[other].relu_by_reader = false;
    TakeOver(step.layer, *maker);
    return true;
  }

  bool MayOverwriteInput(const PlanStep& step) {
    const LayerTraits traits = TraitsOf(step);
    if (!traits.output_in_place) return false;
    const int input = step.inputs[0];
    if (input < 0 || plan_.values[input].readers != 1) return false;
    if (mode_ == Mode::kInference) return true;
    const PlanStep& maker = MakerOf(input);
    const Layer& layer = layers_[maker.layer];
    // A relu's derivative needs the relu's output; if the relu is fused, it needs only the signs.
    return !BackwardReadsOutput(layer, maker, true) &&
           layer.traits().activation != Activation::kRelu &&
           (!plan_.values[input].relu || traits.keeps_signs);
  }

  const std::vector<Layer>& layers_;
  const Mode mode_;
  Plan plan_;
  std::vector<int> value_of_;  // the output of each layer
  std::vector<int> readers_;
};

}  // namespace

Plan MakePlan(const Graph& graph, Mode mode) {
  Plan plan = Planner(graph, mode).Run();
  if (!plan.steps.empty()) {
    const PlanStep& last = plan.steps.back();
    plan.dense_logits = last.output == plan.loss.inputs[0] &&
                        last.activation == Activation::kNone &&
                        std::holds_alternative<DenseSpec>(graph.layers()[last.layer].spec);
  }
  return plan;
}

bool BackwardReadsInput(const Layer& layer, bool input_is_relu) {
  return DoesRead(layer.traits().backward_reads_input, input_is_relu);
}

bool BackwardReadsOutput(const Layer& layer, const PlanStep& step, bool input_is_relu) {
  if (step.fuse_add && step.activation != Activation::kNone) return true;
  return DoesRead(layer.traits().backward_reads_output, input_is_relu);
}

}  // namespace muster
