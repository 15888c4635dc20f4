// The operations of a backend: an op for each layer of a network, made for one batch size and mode.
// The constructor makes everything the op needs (kernels, descriptors), and the op reports its
// memory needs; Forward and Backward allocate nothing. Activations are channels-last: [batch,
// height, width, channels].
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/graph/layer_specs.h"
#include "common/plan/metrics.h"

namespace muster {

enum class Mode { kTraining, kInference };

// Sums (not means) over the samples of one input. Copied bytewise from the device.
struct LossSums {
  double loss = 0;
  // Counts samples whose largest logit is the label's, without ties. A single logit belongs to
  // class 1; the logit of class 0 is then 0 (Layer::first_class).
  int64_t correct = 0;
  double metrics[kMetricCount] = {};  // one that does not apply to the network may have any value

  // Adds a sample. `rank` counts the logits that are at least the label's, with itself; 0 without a
  // label, or if a logit is not finite. CUDA kernels also call this.
  constexpr void Add(double sample_loss, int64_t rank) {
    loss += sample_loss;
    correct += rank == 1;
    metrics[kTop5] += rank >= 1 && rank <= 5;
  }
  constexpr void Add(const LossSums& more) {
    loss += more.loss;
    correct += more.correct;
    for (int m = 0; m < kMetricCount; ++m) metrics[m] += more.metrics[m];
  }
};

// Copies of a tower's weights in other layouts: reordered or transformed. They do not depend on
// batch size and mode, so all ops of a layer share them. Different towers never share them, because
// the same version number denotes different weights in each.
//
// Owned by the tower. Must outlive the ops that use it.
class WeightLayouts {
 public:
  virtual ~WeightLayouts() = default;
  // The size of all copies for the ops made so far, allocated or not.
  virtual size_t bytes() const = 0;
  // Allocates the missing copies. Called before the first Forward of the ops that need them.
  virtual void Allocate() = 0;
};

// The parameters of an op.
//
// Backward passes apply the derivatives of activations as follows. batch_norm and a separate relu6
// apply their own. A relu has no backward, whether it is an op or part of conv2d, dense, add or
// group_norm. Its derivative (zero where its output is not above zero) is applied where the
// gradient of its output is written: by the only op that reads it (input_is_relu), or by
// Backend::AddGradients.
struct OpOptions {
  int64_t batch = 0;
  Mode mode = Mode::kTraining;
  // conv2d, dense, add, group_norm: kNone or kRelu. batch_norm: any.
  Activation activation = Activation::kNone;
  // batch_norm: a second input is added to the normalized one, before the activation.
  bool fuse_add = false;
  // False if nothing upstream is trained. Backward then writes no input gradient.
  bool input_gradient = true;
  // Whether the input is the output of a relu, by whose derivative Backward must also multiply.
  // Only with LayerTraits::applies_relu_before.
  bool input_is_relu = false;
  // dense, losses: whether the logits and their gradient are floats (Backend::logits_type) although
  // the activation type is another.
  bool float_logits = false;
  // dropout: the key of its random numbers.
  uint64_t seed = 0;
  // The layer's index, which also identifies its copies in `layouts`.
  int layer = 0;
  // Made by the same backend. If null, the op has its own copies, which its constructor allocates.
  WeightLayouts* layouts = nullptr;
};

// Addresses are in device memory. Tensors between layers, and their gradients, have
// Backend::activation_type(); variables and their gradients are floats. The arguments, and what
// their spans refer to, are valid only during the call: an op that runs later must copy them.
struct ForwardArgs {
  const void* input = nullptr;
  std::span<const void* const> inputs;  // add, concat, batch_norm with fuse_add: all inputs
  void* output = nullptr;               // may be `input` with LayerTraits::output_in_place
  const float* weights = nullptr;       // normalisations: scale
  const float* bias = nullptr;          // normalisations: shift
  const float* running_mean = nullptr;  // batch_norm, in inference or frozen
  const float* running_variance = nullptr;
  int64_t weights_version = 0;          // see Tower::Forward
  void* state = nullptr;                // valid until Backward; Op::state_bytes()
  void* scratch = nullptr;              // shared by all ops; Op::scratch_bytes()
  const int64_t* sample_ids = nullptr;  // dropout
  int64_t epoch = 0;                    // dropout
};

// `weights` and `state` are as Forward left them. `input` and `output` are too if Backward reads
// them (LayerTraits::backward_reads_input and _output; an op with fuse_add and an activation also
// reads its output); otherwise their contents are undefined. A following relu may have overwritten
// dropout's output. Conv2d does not read its output, so a following relu may have been fused into
// it, and a dropout after that may have worked in place.
struct BackwardArgs {
  const void* input = nullptr;
  const void* output = nullptr;
  // Written only by batch_norm with fuse_add and an activation (see input_gradients).
  const void* output_gradient = nullptr;
  // May be `output_gradient` with LayerTraits::gradient_in_place, but not with fuse_add.
  void* input_gradient = nullptr;
  // concat: one for each input, null if not needed. batch_norm with fuse_add and an activation: the
  // gradient of the input and that of the added input, which may be `output_gradient` or null.
  std::span<void* const> input_gradients;
  const float* weights = nullptr;
  const float* bias = nullptr;  // batch_norm
  int64_t weights_version = 0;
  float* weights_gradient = nullptr;  // gradients are written, not added
  float* bias_gradient = nullptr;
  // batch_norm: mean and variance of the batch, times statistic_weight.
  float* mean_statistic = nullptr;
  float* variance_statistic = nullptr;
  float statistic_weight = 0;
  void* state = nullptr;
  void* scratch = nullptr;
};

// Forward and Backward queue work on Queue::kCompute. They may return before it is done.
class Op {
 public:
  virtual ~Op() = default;
  virtual size_t state_bytes() const = 0;
  virtual size_t scratch_bytes() const = 0;
  virtual void Forward(const ForwardArgs& args) = 0;
  // Called only after a Forward of the same op. Relu and add have no Backward: the gradient of
  // their output is also that of each input.
  virtual void Backward(const BackwardArgs& args) = 0;
};

constexpr int32_t kNoLabel = -1;  // a sample of weight zero

// All addresses are in device memory, as in ForwardArgs.
struct LossArgs {
  const void* logits = nullptr;  // [batch, outputs]
  // kNoLabel, or a class; for values (Layer::is_of_values) the bits of floats other than NaN.
  const int32_t* labels = nullptr;
  void* state = nullptr;  // valid from Forward to Backward; LossOp::state_bytes()
  // The loss weight of each class. Null: all are 1.
  const float* class_weights = nullptr;
  // If below 1, the loss is `share` times the loss for the sample's own label, plus 1 - share times
  // the loss for the label of the preceding sample in the batch (for the first sample, of the
  // last).
  float share = 1;

  constexpr int parts() const { return share < 1 ? 2 : 1; }
};

// A label of a sample, and the weight of its loss.
struct WeightedLabel {
  int32_t label;
  float weight;
};
// Returns a label of sample n of a batch: its own if `part` is 0, or that of the preceding sample
// if `part` is 1. A label outside the classes becomes kNoLabel. CUDA kernels also call this.
constexpr WeightedLabel LabelOf(const LossArgs& args, int64_t batch, int64_t classes, int64_t n,
                                int part) {
  const int32_t label = args.labels[part == 0 ? n : (n + batch - 1) % batch];
  if (label < 0 || label >= classes) return {kNoLabel, 0};
  const float share = part == 0 ? args.share : 1 - args.share;
  return {label, args.class_weights == nullptr ? share : share * args.class_weights[label]};
}

// Computes a loss and counts correct predictions. Queues its work like an op.
class LossOp {
 public:
  virtual ~LossOp() = default;
  virtual size_t state_bytes() const = 0;
  // Writes *sums and, unless `predictions` is null, the class of the first largest logit of each
  // sample; both are in device memory. A non-finite logit gives a non-finite loss.
  virtual void Forward(const LossArgs& args, LossSums* sums, int32_t* predictions) = 0;
  // Writes scale * d(sum of losses)/d(logits). The arguments must be those of the last Forward.
  virtual void Backward(const LossArgs& args, float scale, void* logits_gradient) = 0;
};

}  // namespace muster
