#include "worker/nn/program.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>
#include <variant>

#include "common/base/error.h"
#include "common/trace/trace.h"

namespace muster {
namespace {

// The address of variable `index` in a buffer of the graph's layout; null for -1.
template <typename T>
T* At(const Graph& graph, int index, std::span<T> arena) {
  return index < 0 ? nullptr : arena.data() + graph.variables()[index].offset;
}

// An op has at most one pair of trained variables.
int WeightsOf(const Layer& layer) { return layer.scale >= 0 ? layer.scale : layer.weights; }
int BiasOf(const Layer& layer) { return layer.shift >= 0 ? layer.shift : layer.bias; }

uint64_t KeyOf(const void* address) { return reinterpret_cast<uintptr_t>(address); }

}  // namespace

Program::Program(const Graph& graph, const Plan& plan, const BackwardPlan& backward,
                 const HookLayers& hooks, Backend& backend, WeightLayouts& layouts, int64_t count,
                 Mode mode, uint64_t seed)
    : graph_(graph),
      plan_(plan),
      backward_(backward),
      hooks_(hooks),
      backend_(backend),
      layouts_(layouts),
      count_(count) {
  MakeOps(mode, seed);
  MakeSegments(mode);
  PlaceAll(mode);
}

OpOptions Program::Options(const PlanStep& step, Mode mode, uint64_t seed) const {
  // What a frozen layer keeps for a backward pass that never comes would only take memory.
  const bool only_forward = graph_.layers()[step.layer].frozen && !step.backward;
  return {.batch = count_,
          .mode = only_forward ? Mode::kInference : mode,
          .activation = step.activation,
          .fuse_add = step.fuse_add,
          .input_gradient = plan_.NeedsGradient(step.inputs[0]),
          .input_is_relu = plan_.InputIsRelu(step),
          .float_logits = LogitsType() != backend_.activation_type() &&
                          (step.output == plan_.loss.inputs[0] || step.layer == plan_.loss.layer),
          .seed = seed,
          .layer = step.layer,
          .layouts = &layouts_};
}

void Program::MakeOps(Mode mode, uint64_t seed) {
  size_t most_inputs = 1;
  for (const PlanStep& step : plan_.steps) {
    ops_.push_back({backend_.MakeOp(graph_.layers()[step.layer], Options(step, mode, seed))});
    most_inputs = std::max(most_inputs, step.inputs.size());
  }
  loss_ = backend_.MakeLoss(graph_.layers()[plan_.loss.layer], Options(plan_.loss, mode, seed));
  inputs_.resize(most_inputs);
  input_gradients_.resize(most_inputs);
}

bool Program::HasHook(int layer) const {
  if (layer < 0 || !graph_.layers()[layer].has_variables()) return false;
  return hooks_.empty() || hooks_[static_cast<size_t>(layer)];
}

// Only training repeats its work often enough to record it.
void Program::MakeSegments(Mode mode) {
  bool reads_epoch = false;
  const auto add = [&](std::vector<Segment>& segments, size_t begin, size_t end) {
    if (begin == end) return;
    segments.push_back({begin, end, std::exchange(reads_epoch, false),
                        mode == Mode::kTraining ? backend_.MakeRepeatedWork() : nullptr});
  };
  size_t begin = 0;
  for (size_t i = 0; i < plan_.steps.size(); ++i) {
    const int layer = plan_.steps[i].layer;
    if (HasHook(layer)) add(forward_segments_, std::exchange(begin, i), i);
    reads_epoch |= std::holds_alternative<DropoutSpec>(graph_.layers()[layer].spec);
  }
  add(forward_segments_, begin, plan_.steps.size());
  if (mode != Mode::kTraining) return;
  begin = 0;
  for (size_t i = 0; i < backward_.steps.size(); ++i) {
    if (!HasHook(backward_.steps[i].layer)) continue;
    add(backward_segments_, std::exchange(begin, i + 1), i + 1);
  }
  add(backward_segments_, begin, backward_.steps.size());
  for (const PlanStep& step : plan_.steps) {
    if (!step.backward && graph_.layers()[step.layer].has_variables()) {
      unreached_.insert(unreached_.begin(), step.layer);
    }
  }
}

void Program::PlaceAll(Mode mode) {
  std::vector<Lifetime> all = ValueLifetimes();
  if (mode == Mode::kTraining) ExtendToBackward(all);
  const size_t values = all.size();
  if (mode == Mode::kTraining) {
    const auto gradients = GradientLifetimes();
    all.insert(all.end(), gradients.begin(), gradients.end());
  }
  const size_t states = all.size();
  const auto state_lifetimes = StateLifetimes(mode);
  all.insert(all.end(), state_lifetimes.begin(), state_lifetimes.end());
  const size_t flip = all.size();
  if (plan_.flip) {
    const auto flip_lifetimes = FlipLifetimes();
    all.insert(all.end(), flip_lifetimes.begin(), flip_lifetimes.end());
  }
  workspace_bytes_ = PlaceBuffers(all);

  for (size_t v = 0; v < values; ++v) values_.push_back(all[plan_.values[v].place].offset);
  for (size_t g = values; g < states; ++g) gradients_.push_back(all[g].offset);
  for (size_t i = 0; i < ops_.size(); ++i) ops_[i].state = all[states + i].offset;
  loss_state_ = all[states + ops_.size()].offset;
  scratch_ = all[flip - 1].offset;
  if (!plan_.flip) return;
  mirror_images_ = all[flip].offset;
  mirror_logits_ = all[flip + 1].offset;
}

// Returns the lifetimes of the values' memory. A value that uses another value's memory has none.
std::vector<Lifetime> Program::ValueLifetimes() const {
  std::vector<Lifetime> values(plan_.values.size());
  for (const PlanStep& step : plan_.steps) {
    const int time = static_cast<int>(&step - plan_.steps.data());
    const PlanValue& value = plan_.values[step.output];
    Lifetime& memory = values[value.place];
    if (value.place == step.output) {
      const bool logits = step.output == plan_.loss.inputs[0];
      memory = {logits ? LogitsBytes() : ActivationBytes(value.elements), time, time};
    }
    for (const int input : step.inputs) {
      if (input >= 0) values[plan_.values[input].place].last = time;
    }
  }
  values[plan_.values[plan_.loss.inputs[0]].place].last = LossTime();
  return values;
}

void Program::ExtendToBackward(std::vector<Lifetime>& values) const {
  const auto extend = [&](int value, int time) {
    if (value < 0) return;
    int& last = values[plan_.values[value].place].last;
    last = std::max(last, time);
  };
  extend(plan_.loss.inputs[0], LossTime() + 1);
  for (size_t i = 0; i < backward_.steps.size(); ++i) {
    const BackwardStep& back = backward_.steps[i];
    if (back.step < 0) {
      extend(back.relu_value, BackwardTime(i));
      continue;
    }
    const PlanStep& step = plan_.steps[back.step];
    const Layer& layer = graph_.layers()[step.layer];
    const bool input_is_relu = plan_.InputIsRelu(step);
    if (BackwardReadsInput(layer, input_is_relu)) extend(step.inputs[0], BackwardTime(i));
    if (BackwardReadsOutput(layer, step, input_is_relu)) extend(step.output, BackwardTime(i));
  }
}

std::vector<Lifetime> Program::GradientLifetimes() const {
  std::vector<Lifetime> gradients;
  for (const int64_t elements : backward_.buffer_elements) {
    gradients.push_back({ActivationBytes(elements), LossTime() + 1, -1});
  }
  gradients[backward_.loss_gradient].bytes = LogitsBytes();
  const auto use = [&](int buffer, int time) {
    if (buffer == kNoGradient) return;
    Lifetime& gradient = gradients[buffer];
    if (gradient.last < 0) gradient.first = time;
    gradient.last = time;
  };
  use(backward_.loss_gradient, LossTime() + 1);
  for (size_t i = 0; i < backward_.steps.size(); ++i) {
    const BackwardStep& back = backward_.steps[i];
    use(back.output_gradient, BackwardTime(i));
    for (const int buffer : back.input_gradients) use(buffer, BackwardTime(i));
    for (const int buffer : {back.to, back.a, back.b}) use(buffer, BackwardTime(i));
  }
  return gradients;
}

// Returns the lifetimes of the states of the ops and the loss, and of their shared scratch.
std::vector<Lifetime> Program::StateLifetimes(Mode mode) const {
  std::vector<Lifetime> states;
  size_t scratch = 0;
  for (size_t i = 0; i < ops_.size(); ++i) {
    const int time = static_cast<int>(i);
    states.push_back({ops_[i].op->state_bytes(), time, time});
    scratch = std::max(scratch, ops_[i].op->scratch_bytes());
  }
  states.push_back({loss_->state_bytes(), LossTime(), LossTime() + 1});
  if (mode == Mode::kTraining) {
    for (size_t i = 0; i < backward_.steps.size(); ++i) {
      if (backward_.steps[i].step >= 0) states[backward_.steps[i].step].last = BackwardTime(i);
    }
  }
  const int end = BackwardTime(backward_.steps.size());
  states.push_back({scratch, 0, end});
  return states;
}

// Returns the lifetimes of the mirror images and of their logits. The times of both passes are the
// same, and the first pass must not overwrite mirror images that one of its steps still reads.
std::vector<Lifetime> Program::FlipLifetimes() const {
  Lifetime images{ActivationBytes(graph_.input_shape().elements()), 0, 0};
  for (const PlanStep& step : plan_.steps) {
    if (std::ranges::count(step.inputs, kDataValue) == 0) continue;
    images.last = static_cast<int>(&step - plan_.steps.data());
  }
  return {images, {LogitsBytes(), 0, LossTime()}};
}

Program::LayerBytes Program::LargestLayer() const {
  LayerBytes largest;
  for (size_t i = 0; i < ops_.size(); ++i) {
    const PlanStep& step = plan_.steps[i];
    const PlanValue& value = plan_.values[step.output];
    const size_t output = value.place == step.output ? ActivationBytes(value.elements) : 0;
    const size_t bytes = output + ops_[i].op->state_bytes() + ops_[i].op->scratch_bytes();
    if (bytes >= largest.bytes) largest = {&graph_.layers()[step.layer], bytes};
  }
  return largest;
}

ElementType Program::LogitsType() const {
  return plan_.dense_logits ? backend_.logits_type() : backend_.activation_type();
}

size_t Program::LogitsBytes() const {
  return static_cast<size_t>(count_ * graph_.outputs()) * BytesOf(LogitsType());
}

size_t Program::ActivationBytes(int64_t elements) const {
  return static_cast<size_t>(count_ * elements) * BytesOf(backend_.activation_type());
}

const void* Program::Value(int value, const DeviceInput& input, const std::byte* workspace) const {
  return value == kDataValue ? input.images : workspace + values_[value];
}

void* Program::Gradient(int buffer, std::byte* workspace) const {
  return buffer == kNoGradient ? nullptr : workspace + gradients_[buffer];
}

LossArgs Program::LossArguments(const DeviceInput& input, std::byte* workspace) const {
  return {.logits = Value(plan_.loss.inputs[0], input, workspace),
          .labels = input.labels,
          .state = workspace + loss_state_,
          .class_weights = input.class_weights,
          .share = input.share};
}

void Program::Forward(const DeviceInput& input, std::span<const float> weights,
                      int64_t weights_version, const LayerHook& before_layer,
                      std::byte* workspace) {
  std::byte* const logits = workspace + values_[plan_.loss.inputs[0]];
  if (plan_.flip) {
    DeviceInput mirror = input;
    mirror.images = workspace + mirror_images_;
    backend_.MirrorImages(workspace + mirror_images_, input.images, count_, graph_.input_shape());
    std::byte* const mirror_logits = workspace + mirror_logits_;
    RunForward(mirror, weights, weights_version, before_layer, workspace, mirror_logits);
    RunForward(input, weights, weights_version, nullptr, workspace, logits);
    backend_.AverageLogits(LogitsType(), logits, mirror_logits, count_ * graph_.outputs());
  } else {
    RunForward(input, weights, weights_version, before_layer, workspace, logits);
  }
  const trace::Span span("loss", graph_.layers()[plan_.loss.layer].name);
  const LossArgs loss = LossArguments(input, workspace);
  loss_->Forward(loss, input.sums, input.predictions);
  if (input.logits != nullptr) BringLogits(loss.logits, input.logits);
}

void Program::Run(const Segment& segment, std::span<const uint64_t> key,
                  const std::function<void()>& work) {
  segment.repeated == nullptr ? work() : segment.repeated->Run(key, work);
}

// The weights' version is in no key: devices that record work do not use it.
void Program::RunForward(const DeviceInput& input, std::span<const float> weights,
                         int64_t weights_version, const LayerHook& before_layer,
                         std::byte* workspace, std::byte* logits) {
  for (const Segment& segment : forward_segments_) {
    const uint64_t key[] = {KeyOf(input.images), KeyOf(input.sample_ids),
                            segment.reads_epoch ? static_cast<uint64_t>(input.epoch) : 0,
                            KeyOf(weights.data()), KeyOf(workspace)};
    const int first = plan_.steps[segment.begin].layer;
    if (before_layer && HasHook(first)) before_layer(first);
    Run(segment, key, [&] {
      for (size_t i = segment.begin; i < segment.end; ++i) {
        ForwardStep(i, input, weights, weights_version, workspace, logits);
      }
    });
  }
}

void Program::ForwardStep(size_t index, const DeviceInput& input, std::span<const float> weights,
                          int64_t weights_version, std::byte* workspace, std::byte* logits) {
  const PlanStep& step = plan_.steps[index];
  const Layer& layer = graph_.layers()[step.layer];
  const trace::Span span("forward", layer.name);
  for (size_t j = 0; j < step.inputs.size(); ++j) {
    inputs_[j] = Value(step.inputs[j], input, workspace);
  }
  const BoundOp& bound = ops_[index];
  const bool last = step.output == plan_.loss.inputs[0];
  bound.op->Forward({.input = inputs_[0],
                     .inputs = {inputs_.data(), step.inputs.size()},
                     .output = last ? logits : workspace + values_[step.output],
                     .weights = At(graph_, WeightsOf(layer), weights),
                     .bias = At(graph_, BiasOf(layer), weights),
                     .running_mean = At(graph_, layer.running_mean, weights),
                     .running_variance = At(graph_, layer.running_variance, weights),
                     .weights_version = weights_version,
                     .state = workspace + bound.state,
                     .scratch = workspace + scratch_,
                     .sample_ids = input.sample_ids,
                     .epoch = input.epoch});
}

void Program::BringLogits(const void* logits, float* to) {
  const auto count = static_cast<size_t>(count_ * graph_.outputs());
  if (LogitsType() != ElementType::kFloat32) return BringRoundedLogits(logits, {to, count});
  const size_t bytes = count * sizeof(float);
  if (backend_.shares_host_memory()) {
    std::memcpy(to, logits, bytes);
    return;
  }
  const std::unique_ptr<Event> computed = backend_.MakeEvent(), copied = backend_.MakeEvent();
  backend_.Record(Queue::kCompute, *computed);
  backend_.Await(Queue::kCopyOut, *computed);
  backend_.CopyOut(to, logits, bytes);
  // The next computation must wait for the copy, because it may overwrite the logits.
  backend_.Record(Queue::kCopyOut, *copied);
  backend_.Await(Queue::kCompute, *copied);
}

// Waits for a device, because only the host converts.
void Program::BringRoundedLogits(const void* logits, std::span<float> to) {
  std::vector<uint16_t> halves(to.size());
  const size_t bytes = halves.size() * sizeof(uint16_t);
  if (backend_.shares_host_memory()) {
    std::memcpy(halves.data(), logits, bytes);
  } else {
    constexpr double kPatience = 60;
    const std::unique_ptr<Event> computed = backend_.MakeEvent(), copied = backend_.MakeEvent();
    backend_.Record(Queue::kCompute, *computed);
    backend_.Await(Queue::kCopyOut, *computed);
    backend_.CopyOut(halves.data(), logits, bytes);
    backend_.Record(Queue::kCopyOut, *copied);
    if (!copied->Wait(kPatience)) {
      throw Error(ExitCode::kDeadline, "the device did not finish within {:g} s", kPatience);
    }
  }
  FromHalves(backend_.activation_type(), halves, to.data());
}

void Program::Backward(float loss_scale, const DeviceInput& input, std::span<const float> weights,
                       int64_t weights_version, std::span<float> gradients,
                       const LayerHook& after_layer, std::byte* workspace) {
  {
    const trace::Span span("backward", graph_.layers()[plan_.loss.layer].name);
    loss_->Backward(LossArguments(input, workspace), loss_scale,
                    Gradient(backward_.loss_gradient, workspace));
  }
  for (const Variable& variable : graph_.variables()) {
    if (std::ranges::count(unreached_, variable.layer) == 0) continue;
    backend_.Zero(gradients.data() + variable.offset, variable.count * sizeof(float));
  }
  // Hooks come in the order of backward, from the last layer to the first.
  auto next = unreached_.begin();
  const auto tell_to = [&](int layer) {
    for (; next != unreached_.end() && *next > layer; ++next) {
      if (after_layer && HasHook(*next)) after_layer(*next);
    }
  };
  const uint64_t key[] = {KeyOf(input.images), KeyOf(weights.data()), KeyOf(gradients.data()),
                          KeyOf(workspace), std::bit_cast<uint32_t>(loss_scale)};
  for (const Segment& segment : backward_segments_) {
    Run(segment, key, [&] {
      for (size_t i = segment.begin; i < segment.end; ++i) {
        BackwardOne(backward_.steps[i], loss_scale, input, weights, weights_version, gradients,
                    workspace);
      }
    });
    const int last = backward_.steps[segment.end - 1].layer;
    if (!HasHook(last)) continue;
    tell_to(last);
    if (after_layer) after_layer(last);
  }
  tell_to(-1);
}

void Program::AddGradients(const BackwardStep& back, std::byte* workspace) {
  const trace::Span span("add gradients");
  const int64_t elements = count_ * backward_.buffer_elements[back.to];
  const void* const relu = back.relu_value < 0 ? nullptr : workspace + values_[back.relu_value];
  backend_.AddGradients(Gradient(back.to, workspace), Gradient(back.a, workspace),
                        Gradient(back.b, workspace), relu, elements);
}

void Program::BackwardOne(const BackwardStep& back, float loss_scale, const DeviceInput& input,
                          std::span<const float> weights, int64_t weights_version,
                          std::span<float> gradients, std::byte* workspace) {
  if (back.step < 0) return AddGradients(back, workspace);
  const PlanStep& step = plan_.steps[back.step];
  const Layer& layer = graph_.layers()[step.layer];
  const trace::Span span("backward", layer.name);
  for (size_t j = 0; j < step.inputs.size(); ++j) {
    input_gradients_[j] = Gradient(back.input_gradients[j], workspace);
  }
  BoundOp& bound = ops_[back.step];
  bound.op->Backward({.input = Value(step.inputs[0], input, workspace),
                      .output = workspace + values_[step.output],
                      .output_gradient = Gradient(back.output_gradient, workspace),
                      .input_gradient = input_gradients_[0],
                      .input_gradients = {input_gradients_.data(), step.inputs.size()},
                      .weights = At(graph_, WeightsOf(layer), weights),
                      .bias = At(graph_, BiasOf(layer), weights),
                      .weights_version = weights_version,
                      .weights_gradient = At(graph_, WeightsOf(layer), gradients),
                      .bias_gradient = At(graph_, BiasOf(layer), gradients),
                      .mean_statistic = At(graph_, layer.running_mean, gradients),
                      .variance_statistic = At(graph_, layer.running_variance, gradients),
                      .statistic_weight = static_cast<float>(count_) * loss_scale,
                      .state = workspace + bound.state,
                      .scratch = workspace + scratch_});
}

}  // namespace muster
