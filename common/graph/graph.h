// The network as seen by all processes: layers, shapes, variables, FLOPs. worker/nn executes it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "common/graph/layer_specs.h"
#include "common/graph/shape.h"
#include "common/graph/variable_layout.h"

namespace muster {

struct Layer {
  std::string name;
  std::string kind;  // conv2d, dense, ... as in the config
  LayerSpec spec;
  std::vector<int> inputs;  // indices of the layers that this one reads; kData is the input
  Shape input_shape;        // of the first input; all inputs have it except for concat
  Shape output_shape;
  // Indices into Graph::variables(); -1: none.
  int weights = -1, bias = -1;                   // conv2d, dense
  int scale = -1, shift = -1;                    // normalisations
  int running_mean = -1, running_variance = -1;  // batch_norm
  double forward_flops = 0;                      // per sample; a multiply-add counts as two
  bool frozen = false;  // its variables and running statistics stay, and batch_norm uses the latter

  static constexpr int kData = -1;

  bool has_variables() const { return weights >= 0 || scale >= 0; }
  // Whether the labels of this loss are the bits of float values to predict, not classes.
  bool is_of_values() const {
    return std::holds_alternative<MeanSquaredErrorSpec>(spec) && input_shape.channels == 1;
  }
  // The class of the loss's first logit. This is 0 except for sigmoid_cross_entropy with a single
  // logit, which belongs to class 1 of two classes.
  int64_t first_class() const {
    return std::holds_alternative<SigmoidCrossEntropySpec>(spec) && input_shape.channels == 1;
  }
  LayerTraits traits() const { return TraitsOf(spec); }
};

// An immutable, directed acyclic graph. Layers are in execution order, each after all layers that
// it reads. Every output except the loss's is read by at least one layer. The last layer is the
// loss. The graph of a program that trains its own model has variables, but no layers.
class Graph {
 public:
  // See BuildGraph (common/config/build_graph.h).
  Graph(const Shape& input, std::vector<Layer> layers, std::vector<Variable> variables);
  // Only variables: the network is in a program that trains its own model.
  explicit Graph(VariableLayout layout = {}) : layout_(std::move(layout)) {}

  const Shape& input_shape() const { return input_shape_; }
  const std::vector<Layer>& layers() const { return layers_; }
  // The layout's description has one line for the input and one per layer.
  const VariableLayout& layout() const { return layout_; }
  const std::vector<Variable>& variables() const { return layout_.variables(); }
  size_t arena_floats() const { return layout_.arena_floats(); }
  int64_t outputs() const;  // the width of the loss layer's input; 0 without layers
  int64_t classes() const;  // the number of classes that the loss distinguishes; 0 without layers
  double forward_flops() const;

 private:
  Shape input_shape_;
  std::vector<Layer> layers_;
  VariableLayout layout_;
};

}  // namespace muster
