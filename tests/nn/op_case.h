// Runs one op of a backend and the oracle on the same random numbers, and compares.
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
  double tolerance = 2e-6;  // of the relative L2 difference of each result
  // add, concat: the channels of the inputs after the first; the height and width are the first's.
  std::vector<int64_t> other_channels = {};
  bool fuse_add = false;  // batch_norm: a second input, as large as the first
  // add, concat, fuse_add: gradients for the inputs after the first, too.
  bool other_gradients = true;
  // Backward works in the output gradient's memory, see BackwardArgs; fuse_add: for the added
  // input.
  bool in_place = false;
  Mode mode = Mode::kTraining;
};

std::string Name(const OpCase& c);
Layer LayerOf(const OpCase& c);

// What an op is given and what it makes, all in the layouts of BackwardArgs. Unused ones are empty.
struct OpInputs {
  std::vector<std::vector<float>> inputs;
  std::vector<float> dy;
  std::vector<float> weights, bias;                   // batch_norm: scale, shift
  std::vector<float> running_mean, running_variance;  // batch_norm, in inference
};
struct OpResult {
  Arena output;
  std::vector<Arena> dx;  // one per input; empty where none was asked for
  Arena dw, db;
  Arena mean, variance;  // batch_norm: with statistic_weight 1
};

// Random numbers for a case.
OpInputs RandomInputs(const OpCase& c);
// Forward and, in training, backward, over buffers full of garbage; also in place of the inputs and
// outputs that the plan does not keep for backward.
OpResult RunOp(Backend& backend, const OpCase& c, const OpInputs& inputs);

// Expects output and all gradients of the op to agree with the oracle, and the same bits from a
// second run.
void ExpectMatchesReference(Backend& backend, const OpCase& c);
void ExpectMatchesReference(Backend& backend, const OpCase& c, const OpInputs& inputs);

// Numbers in [-1, 1) that depend on `place` and their index alone.
std::vector<float> RandomFloats(size_t count, uint32_t place);
reference::Doubles ToDoubles(std::span<const float> floats);
Arena ToArena(const std::vector<float>& floats);

// |a - b| / |b| in the 2-norm; |a| where b is zero.
double RelativeL2(std::span<const float> a, std::span<const double> b);

}  // namespace muster
