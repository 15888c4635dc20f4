// What each kind of layer is told by the config, with everything that follows from the shape of its
// input resolved. proto/config.proto has the formulas.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

namespace muster {

// Rows and columns added around an image.
struct Pads {
  int64_t top = 0, bottom = 0, left = 0, right = 0;
};

struct Conv2dSpec {
  int64_t filters, kernel_height, kernel_width, stride_height, stride_width;
  Pads pads;
  bool use_bias;
  int64_t groups = 1;  // the channels of group g are read by the filters of group g alone
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
struct BatchNormSpec {
  float momentum, epsilon;
  bool unbiased;  // running_variance takes n / (n - 1) times the slice's variance
};
struct Relu6Spec {};
struct AddSpec {};
struct ConcatSpec {
  std::vector<int64_t> channels;  // of each input
};
struct GlobalAvgPoolSpec {};
struct SoftmaxSpec {};  // over the channels of each pixel
struct SoftmaxCrossEntropySpec {
  float label_smoothing = 0;
};
struct MeanSquaredErrorSpec {};

using LayerSpec =
    std::variant<Conv2dSpec, DenseSpec, ReluSpec, PoolSpec, LrnSpec, FlattenSpec, DropoutSpec,
                 BatchNormSpec, Relu6Spec, AddSpec, ConcatSpec, GlobalAvgPoolSpec, SoftmaxSpec,
                 SoftmaxCrossEntropySpec, MeanSquaredErrorSpec>;

}  // namespace muster
