// The forward pass of a network: which op runs which layers, and which values they read and make.
// The plan is made once for the whole graph and serves any batch size.
//
// Decisions:
//   - relu is fused into the convolution, dense layer, sum or normalisation that it follows, relu6
//     into the batch norm, and a sum of two into the batch norm that made the later summand;
//   - functions of an element and dropout work in place if the overwritten value is not needed;
//   - flatten, and in inference dropout, have no op;
//   - which op applies a relu's derivative: see OpOptions.
// The backward pass is in backward_plan.h.
#pragma once

#include <cstdint>
#include <vector>

#include "common/graph/graph.h"
#include "worker/backend/backend.h"

namespace muster {

// Values are numbered from 0 in the order in which they are made.
constexpr int kDataValue = -1;  // the input image

struct PlanValue {
  int64_t elements = 0;   // per sample
  int place = 0;          // the value whose memory it uses: itself, or the value that it overwrote
  int readers = 0;        // the number of inputs of steps, including the loss, that read it
  bool gradient = false;  // whether an upstream variable is trained
  // Whether this is a relu's output whose derivative is applied when this value's gradient is
  // complete.
  bool relu = false;
  bool relu_by_reader = false;  // the only reader can apply that derivative itself
};

struct PlanStep {
  int layer = 0;  // the layer whose op it runs
  std::vector<int> inputs;
  int output = kDataValue;  // unused by the loss
  Activation activation = Activation::kNone;
  bool fuse_add = false;
  bool backward = false;  // whether a variable here or upstream is trained
};

struct Plan {
  std::vector<PlanStep> steps;  // all except the loss, in execution order
  PlanStep loss;
  std::vector<PlanValue> values;
  bool dense_logits = false;  // whether the loss reads what a dense layer without relu wrote
  // Whether the steps also run on the mirror images, and the loss reads the mean of both logits.
  // Set by the tower, in inference.
  bool flip = false;

  bool NeedsGradient(int value) const { return value >= 0 && values[value].gradient; }
  bool InputIsRelu(const PlanStep& step) const {
    return step.inputs[0] >= 0 && values[step.inputs[0]].relu_by_reader;
  }
};

Plan MakePlan(const Graph& graph, Mode mode);

// Whether the backward pass of a step's op reads the op's input, or its output (see BackwardArgs).
bool BackwardReadsInput(const Layer& layer, bool input_is_relu);
bool BackwardReadsOutput(const Layer& layer, const PlanStep& step, bool input_is_relu);

}  // namespace muster
