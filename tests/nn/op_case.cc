#include "tests/nn/op_case.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "common/random.h"

namespace muster {
namespace {

struct OpResult {
  Arena output, dx, dw, db;
};

// Garbage shows what an op forgets to write or reads too early.
Arena Garbage(size_t floats) {
  Arena arena(floats);
  for (float& f : arena.floats()) f = std::numeric_limits<float>::quiet_NaN();
  return arena;
}

struct Inputs {
  std::vector<float> x, dy, weights, bias;
};

OpResult RunOp(Backend& backend, const OpCase& c, const Layer& layer, const Inputs& inputs) {
  backend.Enter();
  const auto op = backend.MakeOp(layer, {.batch = c.batch,
                                         .mode = Mode::kTraining,
                                         .fuse_relu = c.fuse_relu,
                                         .input_gradient = c.input_gradient,
                                         .input_is_relu = c.input_is_relu});
  const Arena x = ToArena(inputs.x), dy = ToArena(inputs.dy), weights = ToArena(inputs.weights),
              bias = ToArena(inputs.bias);
  OpResult r{Garbage(inputs.dy.size()), Garbage(inputs.x.size()), Garbage(inputs.weights.size()),
             Garbage(inputs.bias.size())};
  Arena state = Garbage(op->state_floats()), scratch = Garbage(op->scratch_floats());
  op->Forward({.input = x.floats().data(),
               .output = r.output.floats().data(),
               .weights = weights.floats().data(),
               .bias = bias.floats().data(),
               .weights_version = 1,
               .state = state.floats().data(),
               .scratch = scratch.floats().data()});
  scratch = Garbage(op->scratch_floats());
  op->Backward({.input = x.floats().data(),
                .output = r.output.floats().data(),
                .output_gradient = dy.floats().data(),
                .input_gradient = r.dx.floats().data(),
                .weights = weights.floats().data(),
                .weights_version = 1,
                .weights_gradient = r.dw.floats().data(),
                .bias_gradient = r.db.floats().data(),
                .state = state.floats().data(),
                .scratch = scratch.floats().data()});
  return r;
}

void ExpectSameBits(const Arena& a, const Arena& b) {
  EXPECT_EQ(0, std::memcmp(a.floats().data(), b.floats().data(), a.floats().size_bytes()));
}

}  // namespace

std::string Name(const OpCase& c) {
  return fmt::format("{} on {}, batch {}{}{}{}", c.layer, c.input.ToString(), c.batch,
                     c.fuse_relu ? ", fused relu" : "", c.input_is_relu ? ", after relu" : "",
                     c.input_gradient ? "" : ", first");
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
  SCOPED_TRACE(Name(c));
  const Layer layer = reference::MakeLayer(c.layer, c.input);
  Inputs inputs{RandomFloats(c.batch * layer.input_shape.elements(), 1),
                RandomFloats(c.batch * layer.output_shape.elements(), 2), {}, {}};
  if (c.input_is_relu) {
    for (float& x : inputs.x) x = std::max(0.0f, x);
  }
  if (const auto* conv = std::get_if<Conv2dSpec>(&layer.spec)) {
    const int64_t area = conv->kernel_height * conv->kernel_width;
    inputs.weights = RandomFloats(conv->filters * area * c.input.channels, 3);
    if (conv->use_bias) inputs.bias = RandomFloats(conv->filters, 4);
  } else if (const auto* dense = std::get_if<DenseSpec>(&layer.spec)) {
    inputs.weights = RandomFloats(dense->units * c.input.elements(), 3);
    if (dense->use_bias) inputs.bias = RandomFloats(dense->units, 4);
  }

  reference::Context context;
  context.weights = ToDoubles(inputs.weights);
  context.bias = ToDoubles(inputs.bias);
  const auto x = ToDoubles(inputs.x), dy = ToDoubles(inputs.dy);
  auto y = reference::Forward(layer, c.batch, x, context);
  if (c.fuse_relu) {
    for (double& value : y) value = std::max(0.0, value);
  }
  auto expected = reference::Backward(layer, c.batch, x, dy, context);
  if (c.input_is_relu) {
    for (size_t i = 0; i < x.size(); ++i) expected.input[i] *= x[i] > 0;
  }

  const OpResult got = RunOp(backend, c, layer, inputs);
  EXPECT_LE(RelativeL2(got.output.floats(), y), c.tolerance);
  EXPECT_LE(RelativeL2(got.dw.floats(), expected.weights), c.tolerance);
  EXPECT_LE(RelativeL2(got.db.floats(), expected.bias), c.tolerance);
  if (c.input_gradient) {
    EXPECT_LE(RelativeL2(got.dx.floats(), expected.input), c.tolerance);
  }

  const OpResult again = RunOp(backend, c, layer, inputs);
  ExpectSameBits(got.output, again.output);
  ExpectSameBits(got.dw, again.dw);
  ExpectSameBits(got.db, again.db);
  if (c.input_gradient) ExpectSameBits(got.dx, again.dx);
}

}  // namespace muster
