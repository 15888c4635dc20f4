// How a network runs forward: which op for which layers, and which values they read and make. The
// same for any batch size; chosen once for the whole graph.
//
// What is decided here:
//   - relu joins the convolution, dense layer, sum or batch norm that it follows, relu6 the batch
//     norm, and a sum of two joins the batch norm that made the later one;
//   - relu, relu6 and dropout work in place where nobody needs what they overwrite;
//   - flatten, and in inference dropout, are nothing at all;
//   - who applies a relu's derivative: see OpOptions.
// backward_plan.h has the way back.
#pragma once

#include <cstdint>
#include <vector>

#include "common/graph/graph.h"
#include "worker/backend/backend.h"

namespace muster {

// Values are counted from 0, in the order in which they are made.
constexpr int kDataValue = -1;  // the input image

struct PlanValue {
  int64_t elements = 0;         // per sample
  int place = 0;                // the value in whose memory it lies: itself, or what it overwrote
  int readers = 0;              // how many inputs of steps, the loss included, it is
  bool gradient = false;        // something upstream is trained
  bool relu = false;            // a relu's output whose derivative its readers' side applies
  bool relu_by_reader = false;  // its only reader can apply the relu itself
};

struct PlanStep {
  int layer = 0;  // the op is made for this layer
  std::vector<int> inputs;
  int output = kDataValue;  // the loss has none
  Activation activation = Activation::kNone;
  bool fuse_add = false;
  bool backward = false;  // something here or upstream is trained
};

struct Plan {
  std::vector<PlanStep> steps;  // all but the loss, in execution order
  PlanStep loss;
  std::vector<PlanValue> values;

  bool NeedsGradient(int value) const { return value >= 0 && values[value].gradient; }
  bool InputIsRelu(const PlanStep& step) const {
    return step.inputs[0] >= 0 && values[step.inputs[0]].relu_by_reader;
  }
};

Plan MakePlan(const Graph& graph, Mode mode);

// Whether the backward of a step's op looks at what the op read, or made (see BackwardArgs).
bool BackwardReadsInput(const Layer& layer, bool input_is_relu);
bool BackwardReadsOutput(const Layer& layer, const PlanStep& step, bool input_is_relu);

}  // namespace muster
