// The settings of each kind of layer, with everything resolved that depends on the input's shape
// (proto/config.proto has the formulas), and the traits that planning, checks and descriptions use.
// docs/HACKING.md lists the other files that a new kind of layer needs.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace muster {

// A function that an op applies to its result in the same pass.
enum class Activation { kNone, kRelu, kRelu6 };
// Returns "relu", for example, and "" for kNone.
const char* Name(Activation activation);

// The optimizations that a kind of layer allows. The defaults fit a layer whose backward needs only
// the gradient of its output and the state left by forward; see worker/backend/op.h.
struct LayerTraits {
  bool is_loss = false;
  // The output is the input, either always or only in inference, so the layer needs no op then.
  bool moves_nothing = false, moves_nothing_in_inference = false;
  // The layer needs no backward: the gradient of the output is also the gradient of each input.
  bool passes_gradient_on = false;

  // This activation may be fused into a preceding layer.
  Activation activation = Activation::kNone;
  // What can be fused into this layer. kRelu: a relu; the layer that writes the gradient of the
  // output then applies the relu's derivative. kEverything: any activation, whose derivative the op
  // applies itself, and a sum with another tensor.
  enum class Fuses { kNothing, kRelu, kEverything } fuses = Fuses::kNothing;
  // Backward can also multiply by the derivative of a relu that precedes the layer.
  bool applies_relu_before = false;

  // Whether forward may write its output over its input, and whether positive elements then stay
  // positive or become zero.
  bool output_in_place = false, keeps_signs = false;
  // Backward may write the gradient of the input over that of the output.
  bool gradient_in_place = false;
  // When backward reads its input or output. kAfterRelu: only if it applies the derivative of a
  // preceding relu.
  enum class Reads { kNever, kAfterRelu, kAlways };
  Reads backward_reads_input = Reads::kNever, backward_reads_output = Reads::kNever;
  // In every network, the output is a separate tensor that is kept until backward. It counts
  // towards the minimum memory of a job.
  bool keeps_output = false;
};

// Rows and columns added around an image.
struct Pads {
  int64_t top = 0, bottom = 0, left = 0, right = 0;
};

// Each spec has traits() unless the defaults apply, and numbers() if it has settings, which workers
// and server compare. The spec of an elementwise function has kOnnxOperator, the ONNX operator that
// computes it, or null if it takes several.
struct Conv2dSpec {
  int64_t filters, kernel_height, kernel_width, stride_height, stride_width;
  Pads pads;
  bool use_bias;
  int64_t groups = 1;  // the filters of a group read only that group's channels

  LayerTraits traits() const {
    return {.fuses = LayerTraits::Fuses::kRelu,
            .applies_relu_before = true,
            .backward_reads_input = LayerTraits::Reads::kAlways,
            .keeps_output = true};
  }
  std::string numbers() const;
};
struct DenseSpec {
  int64_t units;
  bool use_bias;

  LayerTraits traits() const {
    return {.fuses = LayerTraits::Fuses::kRelu,
            .applies_relu_before = true,
            .backward_reads_input = LayerTraits::Reads::kAlways,
            .keeps_output = true};
  }
  std::string numbers() const;
};
struct ReluSpec {
  static constexpr const char* kOnnxOperator = "Relu";
  LayerTraits traits() const {
    return {.passes_gradient_on = true, .activation = Activation::kRelu, .output_in_place = true};
  }
};
struct PoolSpec {
  enum class Kind { kMax, kAverage } kind;  // the average excludes padding
  int64_t kernel_height, kernel_width, stride_height, stride_width;
  Pads pads;

  LayerTraits traits() const {
    return {.applies_relu_before = true,
            .backward_reads_input = kind == Kind::kAverage ? LayerTraits::Reads::kAfterRelu
                                                           : LayerTraits::Reads::kNever};
  }
  std::string numbers() const;
};
struct ReflectPadSpec {
  int64_t rows, columns;  // added on each side
  std::string numbers() const;
};
struct LrnSpec {  // y_c = x_c / (bias + alpha Σ_{|j-c| <= depth_radius} x_j²)^beta
  int64_t depth_radius;
  float bias, alpha, beta;

  LayerTraits traits() const {
    return {.applies_relu_before = true,
            .backward_reads_input = LayerTraits::Reads::kAlways,
            .keeps_output = true};
  }
  std::string numbers() const;
};
struct FlattenSpec {
  LayerTraits traits() const { return {.moves_nothing = true}; }
};
struct DropoutSpec {
  float rate;

  LayerTraits traits() const {
    return {.moves_nothing_in_inference = true,
            .applies_relu_before = true,
            .output_in_place = true,
            .keeps_signs = true,
            .gradient_in_place = true,
            .backward_reads_output = LayerTraits::Reads::kAfterRelu};
  }
  std::string numbers() const;
};
struct BatchNormSpec {
  float momentum, epsilon;
  bool unbiased;  // running_variance uses n / (n - 1) times the slice's variance

  LayerTraits traits() const {
    return {.fuses = LayerTraits::Fuses::kEverything,
            .gradient_in_place = true,
            .backward_reads_input = LayerTraits::Reads::kAlways};
  }
  std::string numbers() const;
};
// Normalises the channels of each group over a sample's pixels or, if per_pixel, of each pixel.
struct GroupNormSpec {
  int64_t groups;
  float epsilon;
  bool per_pixel;

  LayerTraits traits() const {
    return {.fuses = LayerTraits::Fuses::kRelu,
            .gradient_in_place = true,
            .backward_reads_input = LayerTraits::Reads::kAlways};
  }
  std::string numbers() const;
};
struct Relu6Spec {
  static constexpr const char* kOnnxOperator = "Clip";
  LayerTraits traits() const {
    return {.activation = Activation::kRelu6,
            .output_in_place = true,
            .gradient_in_place = true,
            .backward_reads_output = LayerTraits::Reads::kAlways};
  }
};
// The traits of an elementwise function whose slope is computed from its input, which must then not
// be overwritten, or from its output.
inline LayerTraits SlopeFromInput() {
  return {.gradient_in_place = true, .backward_reads_input = LayerTraits::Reads::kAlways};
}
inline LayerTraits SlopeFromOutput() {
  return {.output_in_place = true,
          .gradient_in_place = true,
          .backward_reads_output = LayerTraits::Reads::kAlways};
}
struct GeluSpec {
  static constexpr const char* kOnnxOperator = nullptr;
  bool tanh = false;  // the approximation

  LayerTraits traits() const { return SlopeFromInput(); }
  std::string numbers() const;
};
struct SiluSpec {
  static constexpr const char* kOnnxOperator = nullptr;
  LayerTraits traits() const { return SlopeFromInput(); }
};
struct SigmoidSpec {
  static constexpr const char* kOnnxOperator = "Sigmoid";
  LayerTraits traits() const { return SlopeFromOutput(); }
};
struct TanhSpec {
  static constexpr const char* kOnnxOperator = "Tanh";
  LayerTraits traits() const { return SlopeFromOutput(); }
};
struct LeakyReluSpec {
  static constexpr const char* kOnnxOperator = "LeakyRelu";
  float slope = 0.01f;

  LayerTraits traits() const { return SlopeFromOutput(); }
  std::string numbers() const;
};
struct AddSpec {
  LayerTraits traits() const {
    return {.passes_gradient_on = true, .fuses = LayerTraits::Fuses::kRelu};
  }
};
struct ConcatSpec {
  std::vector<int64_t> channels;  // of each input

  LayerTraits traits() const { return {.keeps_output = true}; }
};
struct GlobalAvgPoolSpec {};
struct SoftmaxSpec {  // over the channels of each pixel
  LayerTraits traits() const {
    return {.gradient_in_place = true, .backward_reads_output = LayerTraits::Reads::kAlways};
  }
};
struct SoftmaxCrossEntropySpec {
  float label_smoothing = 0;

  LayerTraits traits() const { return {.is_loss = true, .applies_relu_before = true}; }
  std::string numbers() const;
};
struct MeanSquaredErrorSpec {
  LayerTraits traits() const { return {.is_loss = true, .applies_relu_before = true}; }
};
struct SigmoidCrossEntropySpec {
  LayerTraits traits() const { return {.is_loss = true, .applies_relu_before = true}; }
};

using LayerSpec = std::variant<Conv2dSpec, DenseSpec, ReluSpec, PoolSpec, ReflectPadSpec, LrnSpec,
                               FlattenSpec, DropoutSpec, BatchNormSpec, GroupNormSpec, Relu6Spec,
                               GeluSpec, SiluSpec, SigmoidSpec, TanhSpec, LeakyReluSpec, AddSpec,
                               ConcatSpec, GlobalAvgPoolSpec, SoftmaxSpec, SoftmaxCrossEntropySpec,
                               MeanSquaredErrorSpec, SigmoidCrossEntropySpec>;

template <typename Spec>
concept ElementwiseSpec = requires {
  Spec::kOnnxOperator;
};

LayerTraits TraitsOf(const LayerSpec& spec);
// Returns "" if the layer has no numbers.
std::string NumbersOf(const LayerSpec& spec);

}  // namespace muster
