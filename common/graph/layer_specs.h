// What each kind of layer is told by the config, with everything that follows from the shape of its
// input resolved (proto/config.proto has the formulas), and what kind of layer it is: all that
// planning, checks and descriptions know of it. docs/HACKING.md lists the other files that a
// new kind of layer needs.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace muster {

// What an op applies to its result, in the same pass.
enum class Activation { kNone, kRelu, kRelu6 };
// "relu"; "" for kNone.
const char* Name(Activation activation);

// What a kind of layer lets others do. What is left out is right for a layer whose backward needs
// nothing but the gradient of its output and what forward left in its state; see OpOptions and
// BackwardArgs (worker/backend/op.h).
struct LayerTraits {
  bool is_loss = false;
  // Its output is its input, always, or in inference: it has no op there.
  bool moves_nothing = false, moves_nothing_in_inference = false;
  // It has no backward: the gradient of its output is, as it is, that of each input.
  bool passes_gradient_on = false;

  // It is this, and may be made part of a layer before it that fuses it.
  Activation activation = Activation::kNone;
  // A relu: its derivative then belongs to whoever writes the gradient of the output. Everything:
  // any activation, whose derivative the op then applies itself, and a sum with another tensor.
  enum class Fuses { kNothing, kRelu, kEverything } fuses = Fuses::kNothing;
  // Backward can multiply by the derivative of a relu before the layer.
  bool applies_relu_before = false;

  // Forward may write its output over its input, and whether elements that are above zero then
  // still are, or have become zero.
  bool output_in_place = false, keeps_signs = false;
  // Backward may write the gradient of the input over that of the output.
  bool gradient_in_place = false;
  // What backward looks at; kAfterRelu: only if it applies the derivative of a relu before it.
  enum class Reads { kNever, kAfterRelu, kAlways };
  Reads backward_reads_input = Reads::kNever, backward_reads_output = Reads::kNever;
  // The output is a tensor of its own that stays until backward, whatever follows: counted in the
  // least memory of a job.
  bool keeps_output = false;
};

// Rows and columns added around an image.
struct Pads {
  int64_t top = 0, bottom = 0, left = 0, right = 0;
};

// Each spec has traits(), unless they are the default, and numbers() if it has any: what workers
// and server compare of it. A function of each element has kOnnxOperator, which computes it.
struct Conv2dSpec {
  int64_t filters, kernel_height, kernel_width, stride_height, stride_width;
  Pads pads;
  bool use_bias;
  int64_t groups = 1;  // the channels of group g are read by the filters of group g alone

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
  enum class Kind { kMax, kAverage } kind;  // the average leaves padding out
  int64_t kernel_height, kernel_width, stride_height, stride_width;
  Pads pads;

  LayerTraits traits() const {
    return {.applies_relu_before = true,
            .backward_reads_input = kind == Kind::kAverage ? LayerTraits::Reads::kAfterRelu
                                                           : LayerTraits::Reads::kNever};
  }
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
  bool unbiased;  // running_variance takes n / (n - 1) times the slice's variance

  LayerTraits traits() const {
    return {.fuses = LayerTraits::Fuses::kEverything,
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

using LayerSpec =
    std::variant<Conv2dSpec, DenseSpec, ReluSpec, PoolSpec, LrnSpec, FlattenSpec, DropoutSpec,
                 BatchNormSpec, Relu6Spec, AddSpec, ConcatSpec, GlobalAvgPoolSpec, SoftmaxSpec,
                 SoftmaxCrossEntropySpec, MeanSquaredErrorSpec, SigmoidCrossEntropySpec>;

template <typename Spec>
concept ElementwiseSpec = requires {
  Spec::kOnnxOperator;
};

LayerTraits TraitsOf(const LayerSpec& spec);
// "" if it has none.
std::string NumbersOf(const LayerSpec& spec);

}  // namespace muster
