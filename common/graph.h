// The network as every process sees it: layers, shapes, variables, initialisers, FLOPs.
// No arithmetic is done here; worker/nn executes it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/shape.h"
#include "proto/config.pb.h"

namespace muster {

// Rows and columns added around an image.
struct Pads {
  int64_t top = 0, bottom = 0, left = 0, right = 0;
};

struct Conv2dSpec {
  int64_t filters, kernel_height, kernel_width, stride_height, stride_width;
  Pads pads;
  bool use_bias;
};
struct DenseSpec {
  int64_t units;
  bool use_bias;
};
struct ReluSpec {};
struct PoolSpec {
  enum class Kind { kMax, kAverage } kind;  // the average leaves padding out
  int64_t kernel_height, kernel_width, stride_height, stride_width;
  Pads pads;
};
struct LrnSpec {  // y_c = x_c / (bias + alpha Σ_{|j-c| <= depth_radius} x_j²)^beta
  int64_t depth_radius;
  float bias, alpha, beta;
};
struct FlattenSpec {};
struct DropoutSpec {
  float rate;
};
struct SoftmaxCrossEntropySpec {};

using LayerSpec = std::variant<Conv2dSpec, DenseSpec, ReluSpec, PoolSpec, LrnSpec, FlattenSpec,
                               DropoutSpec, SoftmaxCrossEntropySpec>;

// One trained tensor, or a running statistic of a normalisation. Its elements lie at [offset, offset + count) of the arena, in the order
// [out, height, width, in] (convolution), [out, in] (dense) or [out] (bias).
struct Variable {
  enum class Kind {
    kWeights,
    kBias,
    kScale,  // of a normalisation
    kShift,
    // Not trained: what a worker delivers in place of a slice's gradient is the slice's statistic
    // times its share of the batch's samples, so that the tree sum is the batch's statistic s;
    // the server's update is w ← w + statistic_momentum (s - w), without learning rate and decay.
    kStatistic,
  };
  std::string name;  // <layer>/weights, bias, scale, shift, running_mean or running_variance
  Kind kind = Kind::kWeights;
  int layer;         // index into Graph::layers()
  std::vector<int64_t> shape;
  size_t offset;  // in floats, a multiple of 16 (64 bytes)
  size_t count;   // in floats
  int64_t fan_in, fan_out;
  config::Initializer initializer;
  std::optional<float> weight_decay;  // empty: the optimizer's, which may leave this kind out
  float learning_rate_multiplier = 1;
  float statistic_momentum = 0;  // kStatistic

  std::string ShapeString() const;  // [64,5,5,3]
};

struct Layer {
  std::string name;
  std::string kind;  // conv2d, dense, ... as in the config
  LayerSpec spec;
  int input;  // index of the layer that this one reads; -1 is the data
  Shape input_shape, output_shape;
  int weights = -1, bias = -1;  // indices into Graph::variables(); -1: none
  double forward_flops = 0;     // per sample; a multiply-add is two
};

// Immutable. Layers are in execution order; the last one is the loss.
class Graph {
 public:
  // Infers all shapes. Throws Error(kUsage) that names the layer, what was expected and what is
  // there. `input` is the shape of a preprocessed sample.
  static Graph Build(const config::Model& model, const Shape& input);

  const Shape& input_shape() const { return input_shape_; }
  const std::vector<Layer>& layers() const { return layers_; }
  const std::vector<Variable>& variables() const { return variables_; }
  // The variables lie in one arena in the order in which the forward pass uses them.
  size_t arena_floats() const { return arena_floats_; }
  int64_t parameter_count() const;
  int64_t classes() const;  // width of the loss layer's input
  double forward_flops() const;

  // One line per layer that says everything that workers and server must agree on.
  std::vector<std::string> Describe() const;
  // 64-bit hash of Describe().
  uint64_t Hash() const;

 private:
  Shape input_shape_;
  std::vector<Layer> layers_;
  std::vector<Variable> variables_;
  size_t arena_floats_ = 0;
};

}  // namespace muster
