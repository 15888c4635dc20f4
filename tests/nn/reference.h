// The oracle of the nn tests: every layer as plain loops in double precision, channels-last, one
// sample after the other. reference_test.cc checks its gradients against finite differences.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/graph.h"

namespace muster::reference {

using Doubles = std::vector<double>;

// What a layer needs beside its input. Weights and bias may be empty.
struct Context {
  Doubles weights, bias;
  // dropout, in training
  bool training = true;
  uint64_t seed = 0;
  int layer = 0;
  std::vector<int64_t> sample_ids;
  int64_t epoch = 0;
};

struct Gradients {
  Doubles input, weights, bias;
};

// Any layer but the loss. x: [batch, input_shape] → [batch, output_shape].
Doubles Forward(const Layer& layer, int64_t batch, const Doubles& x, const Context& context);
Gradients Backward(const Layer& layer, int64_t batch, const Doubles& x, const Doubles& dy,
                   const Context& context);

// Sum over the samples of -log softmax(logits)[label], and its gradient.
double Loss(const Doubles& logits, const std::vector<int32_t>& labels);
Doubles LossGradient(const Doubles& logits, const std::vector<int32_t>& labels);

// A whole network: the loss sum of a batch, and the gradient of `scale` times it with respect to
// every variable, in arena order.
struct NetworkResult {
  double loss = 0;
  Doubles gradients;
};
NetworkResult Run(const Graph& graph, const Doubles& arena, const Doubles& images,
                  const std::vector<int32_t>& labels, const Context& context, double scale);

// The graph of a model in text format.
Graph MakeGraph(const std::string& model_text, const Shape& input);
// The layer of one line such as `conv2d { filters: 3 kernel: 5 }` that reads `input`.
Layer MakeLayer(const std::string& layer_text, const Shape& input);

}  // namespace muster::reference
