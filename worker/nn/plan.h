// How a network runs: which op for which layers, and where values live. The same for any batch
// size; chosen once for the whole graph.
//
// What is decided here:
//   - relu joins the convolution or dense layer that it follows (its post-op);
//   - relu and dropout work in place where nobody needs what they overwrite;
//   - flatten, and in inference dropout, are nothing at all;
//   - backward ends at the first layer with variables;
//   - a relu's derivative is applied by the op after it, which has the values at hand.
#pragma once

#include <cstdint>
#include <vector>

#include "common/graph.h"
#include "worker/backend/backend.h"

namespace muster {

// Where one op reads and writes. Values are counted from 0, in the order in which they are made;
// kDataValue is the input image.
constexpr int kDataValue = -1;

struct PlanStep {
  int layer = 0;  // the op is made for this layer
  int input_value = kDataValue;
  int output_value = kDataValue;  // == input_value: in place
  bool fuse_relu = false;
  bool input_is_relu = false;
  bool backward = false;        // something here or upstream is trained
  bool input_gradient = false;  // something upstream is trained
};

struct Plan {
  std::vector<PlanStep> steps;  // all but the loss, in execution order
  PlanStep loss;                // reads its input_value
  std::vector<int64_t> value_elements;  // per sample
};

Plan MakePlan(const Graph& graph, Mode mode);

}  // namespace muster
