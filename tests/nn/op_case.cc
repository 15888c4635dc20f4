#include "tests/nn/op_case.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "common/base/random.h"
#include "worker/nn/plan.h"

namespace muster {
namespace {

// Garbage reveals data that an op forgets to write or reads too early.
Arena Garbage(size_t floats) {
  Arena arena(floats);
  for (float& f : arena.floats()) f = std::numeric_limits<float>::quiet_NaN();
  return arena;
}

bool IsNorm(const Layer& layer) { return std::holds_alternative<BatchNormSpec>(layer.spec); }
// Ops without backward pass gradients on unchanged.
bool PassesGradientOn(const Layer& layer) { return layer.traits().passes_gradient_on; }

size_t InputCount(const OpCase& c) { return 1 + c.other_channels.size() + (c.fuse_add ? 1 : 0); }

std::vector<Shape> InputShapes(const OpCase& c) {
  std::vector<Shape> shapes = {c.input};
  for (const int64_t channels : c.other_channels) {
    shapes.push_back({c.input.height, c.input.width, channels});
  }
  return shapes;
}

bool WantsGradient(const OpCase& c, size_t input) {
  return input == 0 ? c.input_gradient : c.other_gradients;
}

void ExpectSameBits(const Arena& a, const Arena& b) {
  EXPECT_EQ(0, std::memcmp(a.floats().data(), b.floats().data(), a.floats().size_bytes()));
}

}  // namespace

std::string Name(const OpCase& c) {
  const std::string activation = Name(c.activation);
  return fmt::format("{} on {}, {} inputs, batch {}{}{}{}{}{}{}", c.layer, c.input.ToString(),
                     InputCount(c), c.batch, c.fuse_add ? ", fused add" : "",
                     activation.empty() ? "" : ", " + activation,
                     c.input_is_relu ? ", after relu" : "", c.input_gradient ? "" : ", first",
                     c.other_gradients ? "" : ", others first", c.in_place ? ", in place" : "");
}

Layer LayerOf(const OpCase& c) {
  Layer layer = reference::MakeLayer(c.layer, InputShapes(c));
  layer.frozen = c.frozen;
  return layer;
}

OpInputs RandomInputs(const OpCase& c) {
  const Layer layer = LayerOf(c);
  OpInputs inputs;
  for (const Shape& shape : InputShapes(c)) {
    const auto place = static_cast<uint32_t>(inputs.inputs.size());
    inputs.inputs.push_back(RandomFloats(c.batch * shape.elements(), place == 0 ? 1 : 10 + place));
  }
  if (c.fuse_add) inputs.inputs.push_back(RandomFloats(c.batch * c.input.elements(), 20));
  if (c.input_is_relu) {
    for (float& x : inputs.inputs[0]) x = std::max(0.0f, x);
  }
  inputs.dy = RandomFloats(c.batch * layer.output_shape.elements(), 2);
  if (const auto* conv = std::get_if<Conv2dSpec>(&layer.spec)) {
    const int64_t area = conv->kernel_height * conv->kernel_width;
    inputs.weights = RandomFloats(conv->filters * area * c.input.channels / conv->groups, 3);
    if (conv->use_bias) inputs.bias = RandomFloats(conv->filters, 4);
  } else if (const auto* dense = std::get_if<DenseSpec>(&layer.spec)) {
    inputs.weights = RandomFloats(dense->units * c.input.elements(), 3);
    if (dense->use_bias) inputs.bias = RandomFloats(dense->units, 4);
  } else if (layer.scale >= 0) {
    inputs.weights = RandomFloats(c.input.channels, 3);
    inputs.bias = RandomFloats(c.input.channels, 4);
  }
  if (IsNorm(layer)) {
    inputs.running_mean = RandomFloats(c.input.channels, 5);
    inputs.running_variance = RandomFloats(c.input.channels, 6);
    for (float& v : inputs.running_variance) v = v * v + 0.1f;
  }
  return inputs;
}

OpResult RunOp(Backend& backend, const OpCase& c, const OpInputs& inputs) {
  backend.Enter();
  const Layer layer = LayerOf(c);
  const auto op = backend.MakeOp(layer, {.batch = c.batch,
                                         .mode = c.mode,
                                         .activation = c.activation,
                                         .fuse_add = c.fuse_add,
                                         .input_gradient = c.input_gradient,
                                         .input_is_relu = c.input_is_relu});
  std::vector<Arena> x;
  std::vector<const void*> addresses;
  for (const auto& input : inputs.inputs) x.push_back(ToArena(input));
  for (const Arena& arena : x) addresses.push_back(arena.floats().data());
  const Arena weights = ToArena(inputs.weights), bias = ToArena(inputs.bias),
              running_mean = ToArena(inputs.running_mean),
              running_variance = ToArena(inputs.running_variance);
  OpResult r{.output = Garbage(inputs.dy.size()),
             .dx = {},
             .dw = Garbage(inputs.weights.size()),
             .db = Garbage(inputs.bias.size()),
             .mean = Garbage(inputs.running_mean.size()),
             .variance = Garbage(inputs.running_mean.size())};
  Arena state = Garbage(op->state_bytes() / sizeof(float)),
        scratch = Garbage(op->scratch_bytes() / sizeof(float));
  op->Forward({.input = addresses[0],
               .inputs = addresses,
               .output = r.output.floats().data(),
               .weights = weights.floats().data(),
               .bias = bias.floats().data(),
               .running_mean = running_mean.floats().data(),
               .running_variance = running_variance.floats().data(),
               .weights_version = 1,
               .state = state.floats().data(),
               .scratch = scratch.floats().data()});
  if (c.mode == Mode::kInference || PassesGradientOn(layer)) return r;

  scratch = Garbage(op->scratch_bytes() / sizeof(float));
  const Arena no_input = Garbage(inputs.inputs[0].size()), no_output = Garbage(inputs.dy.size());
  PlanStep step;
  step.activation = c.activation;
  step.fuse_add = c.fuse_add;
  const bool reads_input = BackwardReadsInput(layer, c.input_is_relu);
  const bool reads_output = BackwardReadsOutput(layer, step, c.input_is_relu);
  Arena dy = ToArena(inputs.dy);
  std::vector<void*> gradients;
  const size_t in_place = c.fuse_add ? 1 : 0;
  // Without an activation the added input's gradient equals the output's, and is not written.
  const bool shared = c.fuse_add && c.activation == Activation::kNone;
  for (size_t j = 0; j < inputs.inputs.size(); ++j) {
    r.dx.push_back(WantsGradient(c, j) && !(shared && j == 1) ? Garbage(inputs.inputs[j].size())
                                                              : Arena(0));
    const bool here = c.in_place && j == in_place;
    gradients.push_back(r.dx[j].floats().empty() ? nullptr
                        : here                   ? dy.floats().data()
                                                 : r.dx[j].floats().data());
  }
  op->Backward({.input = reads_input ? addresses[0] : no_input.floats().data(),
                .output = reads_output ? r.output.floats().data() : no_output.floats().data(),
                .output_gradient = dy.floats().data(),
                .input_gradient = gradients[0],
                .input_gradients = gradients,
                .weights = weights.floats().data(),
                .bias = bias.floats().data(),
                .weights_version = 1,
                .weights_gradient = r.dw.floats().data(),
                .bias_gradient = r.db.floats().data(),
                .mean_statistic = r.mean.floats().data(),
                .variance_statistic = r.variance.floats().data(),
                .statistic_weight = 1,
                .state = state.floats().data(),
                .scratch = scratch.floats().data()});
  if (c.in_place) r.dx[in_place] = std::move(dy);
  return r;
}

std::vector<float> RandomFloats(size_t count, uint32_t place) {
  const RandomStream stream(42, RandomPurpose::kSynthetic, place, 0, 0);
  std::vector<float> floats(count);
  for (size_t i = 0; i < count; ++i) floats[i] = 2 * ToUniform(stream.Block(i / 4)[i % 4]) - 1;
  return floats;
}

reference::Doubles ToDoubles(std::span<const float> floats) {
  return reference::Doubles(floats.begin(), floats.end());
}

Arena ToArena(const std::vector<float>& floats) {
  Arena arena(floats.size());
  std::copy(floats.begin(), floats.end(), arena.floats().begin());
  return arena;
}

double RelativeL2(std::span<const float> a, std::span<const double> b) {
  EXPECT_EQ(a.size(), b.size());
  double difference = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  return size > 0 ? std::sqrt(difference / size) : std::sqrt(difference);
}

void ExpectMatchesReference(Backend& backend, const OpCase& c) {
  ExpectMatchesReference(backend, c, RandomInputs(c));
}

void ExpectMatchesReference(Backend& backend, const OpCase& c, const OpInputs& inputs) {
  SCOPED_TRACE(Name(c));
  const Layer layer = LayerOf(c);
  reference::Context context;
  context.training = c.mode == Mode::kTraining;
  context.weights = ToDoubles(inputs.weights);
  context.bias = ToDoubles(inputs.bias);
  context.running_mean = ToDoubles(inputs.running_mean);
  context.running_variance = ToDoubles(inputs.running_variance);
  std::vector<reference::Doubles> x;
  for (const auto& input : inputs.inputs) x.push_back(ToDoubles(input));

  auto y = reference::Forward(layer, c.batch, x, context);
  if (c.fuse_add) {
    for (size_t i = 0; i < y.size(); ++i) y[i] += x[1][i];
  }
  const OpResult got = RunOp(backend, c, inputs), again = RunOp(backend, c, inputs);
  EXPECT_LE(RelativeL2(got.output.floats(), reference::Activate(y, c.activation)), c.tolerance);
  ExpectSameBits(got.output, again.output);
  if (c.mode == Mode::kInference || PassesGradientOn(layer)) return;

  // A batch norm applies its activation's derivative itself. For other ops see OpOptions.
  auto dy = ToDoubles(inputs.dy);
  if (IsNorm(layer)) dy = reference::ActivationGradient(y, dy, c.activation);
  auto expected = reference::Backward(layer, c.batch, x, dy, context);
  if (c.fuse_add) expected.inputs.push_back(dy);
  if (c.input_is_relu) {
    expected.inputs[0] = reference::ActivationGradient(x[0], expected.inputs[0], Activation::kRelu);
  }
  EXPECT_LE(RelativeL2(got.dw.floats(), expected.weights), c.tolerance);
  EXPECT_LE(RelativeL2(got.db.floats(), expected.bias), c.tolerance);
  EXPECT_LE(RelativeL2(got.mean.floats(), expected.mean), c.tolerance);
  EXPECT_LE(RelativeL2(got.variance.floats(), expected.variance), c.tolerance);
  ExpectSameBits(got.dw, again.dw);
  ExpectSameBits(got.db, again.db);
  for (size_t j = 0; j < got.dx.size(); ++j) {
    if (got.dx[j].floats().empty()) continue;
    EXPECT_LE(RelativeL2(got.dx[j].floats(), expected.inputs[j]), c.tolerance) << "input " << j;
    ExpectSameBits(got.dx[j], again.dx[j]);
  }
}

}  // namespace muster
