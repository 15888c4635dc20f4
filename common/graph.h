// The network as every process sees it: layers, shapes, variables, initialisers, FLOPs.
// No arithmetic is done here; worker/nn executes it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/config_fwd.h"
#include "common/layer_specs.h"
#include "common/shape.h"

namespace muster {

// config::Initializer in plain values, the kinds numbered as there.
struct Initializer {
  enum class Kind { kConstant = 1, kTruncatedNormal, kHe, kXavier };
  Kind kind = Kind::kConstant;
  float value = 0;   // kConstant
  float stddev = 0;  // kTruncatedNormal
};

// One trained tensor, or a running statistic of a normalisation. Its elements lie at
// [offset, offset + count) of the arena, in the order [out, height, width, in / groups]
// (convolution), [out, in] (dense) or [channels] (all others).
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
  int layer;  // index into Graph::layers()
  std::vector<int64_t> shape;
  size_t offset;  // in floats, a multiple of 16 (64 bytes)
  size_t count;   // in floats
  int64_t fan_in, fan_out;
  Initializer initializer;
  std::optional<float> weight_decay;  // empty: the optimizer's, which may leave this kind out
  float learning_rate_multiplier = 1;
  float statistic_momentum = 0;  // kStatistic

  std::string ShapeString() const;  // [64,5,5,3]
};

struct Layer {
  std::string name;
  std::string kind;  // conv2d, dense, ... as in the config
  LayerSpec spec;
  std::vector<int> inputs;  // indices of the layers that this one reads; kData is the image
  Shape input_shape;        // of the first input; that of all of them but for concat
  Shape output_shape;
  // Indices into Graph::variables(); -1: none.
  int weights = -1, bias = -1;                                           // conv2d, dense
  int scale = -1, shift = -1, running_mean = -1, running_variance = -1;  // batch_norm
  double forward_flops = 0;  // per sample; a multiply-add is two

  static constexpr int kData = -1;

  bool has_variables() const { return weights >= 0 || scale >= 0; }
  bool is_loss() const;
};

// A directed graph without cycles. Immutable. Layers are in execution order, each after all that
// it reads; an output may be read by several layers, and every one but the loss's is read. The
// last layer is the loss.
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
  int64_t parameter_count() const;  // of the trained variables: running statistics left out
  int64_t classes() const;          // width of the loss layer's input
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
