// The oracle of the nn tests: every layer as plain loops in double precision, channels-last, sample
// by sample. reference_test.cc compares it with PyTorch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/graph/graph.h"
#include "worker/backend/backend.h"

namespace muster::reference {

using Doubles = std::vector<double>;

// A layer's data besides its inputs. Weights and bias may be empty.
struct Context {
  Doubles weights, bias;                   // normalisations: scale, shift
  Doubles running_mean, running_variance;  // batch_norm, in inference
  // dropout: whether this is training
  bool training = true;
  uint64_t seed = 0;
  int layer = 0;
  std::vector<int64_t> sample_ids;
  int64_t epoch = 0;
};

struct Gradients {
  std::vector<Doubles> inputs;
  Doubles weights, bias;
  Doubles mean, variance;  // batch_norm: the contribution to the running statistics
};

// Any layer except the loss. Each input is [batch, its shape], the result [batch, output_shape].
Doubles Forward(const Layer& layer, int64_t batch, const std::vector<Doubles>& inputs,
                const Context& context);
Gradients Backward(const Layer& layer, int64_t batch, const std::vector<Doubles>& inputs,
                   const Doubles& dy, const Context& context);

// A function of one element: its value and slope at x. Empty for other layers.
struct Curve {
  double value, slope;
};
std::optional<Curve> ElementwiseAt(const LayerSpec& layer, double x);

// The parts of Forward and Backward for GroupNormSpec.
Doubles GroupNormForward(const Layer& layer, const Doubles& x, const Context& context);
Gradients GroupNormBackward(const Layer& layer, const Doubles& x, const Doubles& dy,
                            const Context& context);

Doubles Activate(Doubles x, Activation activation);
// dy where the activation has slope 1 at x, otherwise zero.
Doubles ActivationGradient(const Doubles& x, Doubles dy, Activation activation);

// The sum of the loss over the samples, and its gradient. Samples with label -1 are ignored.
double Loss(const LayerSpec& loss, const Doubles& logits, const std::vector<int32_t>& labels);
Doubles LossGradient(const LayerSpec& loss, const Doubles& logits,
                     const std::vector<int32_t>& labels);

// The results of a whole network: the loss sum of a batch. In training also, in the order of the
// parameter buffer, the gradient of `scale` times the loss for every trained variable, and count *
// scale times every statistic.
struct NetworkResult {
  double loss = 0;
  Doubles gradients;
  Doubles logits;
};
NetworkResult Run(const Graph& graph, const Doubles& arena, const Doubles& images,
                  const std::vector<int32_t>& labels, const Context& context, double scale);

// The graph of a model in text format.
Graph MakeGraph(const std::string& model_text, const Shape& input);
// The layer for a line such as `conv2d { filters: 3 kernel: 5 }` with this input.
Layer MakeLayer(const std::string& layer_text, const Shape& input);
// A layer with several inputs of the same height and width.
Layer MakeLayer(const std::string& layer_text, const std::vector<Shape>& inputs);

}  // namespace muster::reference
