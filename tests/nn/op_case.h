// Runs a backend's op and the oracle on the same random numbers and compares the results.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/memory.h"
#include "tests/nn/reference.h"
#include "worker/backend/backend.h"

namespace muster {

struct OpCase {
  std::string layer;  // conv2d { filters: 3 kernel: 5 }
  Shape input;
  int64_t batch = 1;
  Activation activation = Activation::kNone;  // fused; see OpOptions
  bool input_is_relu = false;
  bool input_gradient = true;
  double tolerance = 2e-6;  // for the relative L2 difference of each result
  // add, concat: the channels of the inputs after the first. Height and width equal the first's.
  std::vector<int64_t> other_channels = {};
  bool fuse_add = false;  // batch_norm: a second input with the shape of the first
  // add, concat, fuse_add: whether the inputs after the first also get gradients.
  bool other_gradients = true;
  // Whether backward overwrites the output gradient, see BackwardArgs. With fuse_add: for the added
  // input.
  bool in_place = false;
  Mode mode = Mode::kTraining;
  bool frozen = false;  // Layer::frozen
};

std::string Name(const OpCase& c);
Layer LayerOf(const OpCase& c);

// An op's inputs and results, in the layouts of BackwardArgs. Unused ones are empty.
struct OpInputs {
  std::vector<std::vector<float>> inputs;
  std::vector<float> dy;
  std::vector<float> weights, bias;                   // normalisations: scale, shift
  std::vector<float> running_mean, running_variance;  // batch_norm, in inference
};
struct OpResult {
  Arena output;
  std::vector<Arena> dx;  // one per input; empty if not requested
  Arena dw, db;
  Arena mean, variance;  // batch_norm: with statistic_weight 1
};

OpInputs RandomInputs(const OpCase& c);
// Runs forward and, in training, backward, with buffers full of garbage. Works in place on inputs
// and outputs that the plan does not keep for backward.
OpResult RunOp(Backend& backend, const OpCase& c, const OpInputs& inputs);

// Expects that output and gradients match the oracle, and that a second run has the same bits.
void ExpectMatchesReference(Backend& backend, const OpCase& c);
void ExpectMatchesReference(Backend& backend, const OpCase& c, const OpInputs& inputs);

// Numbers in [-1, 1) that depend only on `place` and their index.
std::vector<float> RandomFloats(size_t count, uint32_t place);
reference::Doubles ToDoubles(std::span<const float> floats);
Arena ToArena(const std::vector<float>& floats);

// |a - b| / |b| in the 2-norm, or |a| if b is zero.
double RelativeL2(std::span<const float> a, std::span<const double> b);

}  // namespace muster
