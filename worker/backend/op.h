// What a backend computes with: an op for each layer of a network, made for a given batch size and
// mode. An op makes everything it needs (kernels, descriptors) when it is made, and says how much
// memory it wants; Forward and Backward allocate nothing. Activations are channels-last: [batch,
// height, width, channels].
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/graph/layer_specs.h"

namespace muster {

enum class Mode { kTraining, kInference };

// Sums over the samples of one input (not divided by anything). Plain numbers: copied from the
// device as they are.
struct LossSums {
  double loss = 0;
  // The largest logit is the label's; a tie is not. A single logit is that of class 1, and that of
  // class 0 is 0 (Layer::first_class).
  int64_t correct = 0;
  int64_t correct_top5 = 0;  // fewer than five other logits are as large as the label's, or larger
};

// What the ops of one tower derive from its weights: reordered or transformed copies. They are the
// same whatever batch size and mode an op is made for, so the ops of a layer share them; ops of
// other towers never do, whose weights are others under the same version numbers.
//
// Owner: the tower. Must outlive the ops that were made with it.
class WeightLayouts {
 public:
  virtual ~WeightLayouts() = default;
  // The bytes that all copies of the ops made so far need, allocated or not.
  virtual size_t bytes() const = 0;
  // Allocates those that are not yet. Before the first Forward of the ops that need them.
  virtual void Allocate() = 0;
};

// What an op is made for.
//
// Says which op multiplies a gradient by the derivative of an activation. batch_norm and the op
// relu6 multiply by their own. A relu has no backward: whether it is an op or part of conv2d, dense
// or add, its derivative (zero unless its output is above zero) is applied by whatever writes the
// gradient of its output: the one op that reads it (input_is_relu), or Backend::AddGradients.
struct OpOptions {
  int64_t batch = 0;
  Mode mode = Mode::kTraining;
  // conv2d, dense, add: kNone or kRelu. batch_norm: any.
  Activation activation = Activation::kNone;
  // batch_norm: a second input is added to the normalised one, before the activation.
  bool fuse_add = false;
  // False: nobody upstream is trained, and Backward writes no input gradient.
  bool input_gradient = true;
  // The input is the output of a relu: Backward also multiplies by that relu's derivative.
  // Only where LayerTraits::applies_relu_before.
  bool input_is_relu = false;
  // dropout: what its random numbers are keyed by.
  uint64_t seed = 0;
  // The layer's index: also what its copies in `layouts` are found by.
  int layer = 0;
  // The backend's layouts. Null: the op has its own copies, allocated when it is made.
  WeightLayouts* layouts = nullptr;
};

// Addresses are in the device's memory. Tensors that flow between layers, and their gradients, are
// of Backend::activation_type(); variables and their gradients are floats. The arguments themselves
// (and what their spans refer to) are the caller's again when the call returns: an op that runs
// later keeps copies.
struct ForwardArgs {
  const void* input = nullptr;
  std::span<const void* const> inputs;  // add, concat, batch_norm with fuse_add: all of them
  void* output = nullptr;               // may be `input` where LayerTraits::output_in_place
  const float* weights = nullptr;       // batch_norm: scale
  const float* bias = nullptr;          // batch_norm: shift
  const float* running_mean = nullptr;  // batch_norm, in inference
  const float* running_variance = nullptr;
  int64_t weights_version = 0;          // see Tower::Forward
  void* state = nullptr;                // kept until Backward; Op::state_bytes()
  void* scratch = nullptr;              // shared by all ops; Op::scratch_bytes()
  const int64_t* sample_ids = nullptr;  // dropout
  int64_t epoch = 0;                    // dropout
};

// `weights` and `state`: as Forward left them. `input` and `output` too, but only where Backward
// reads them (LayerTraits::backward_reads_input and _output; the output also of an op with fuse_add
// and an activation); otherwise there may be anything at that address. Dropout's output may have
// been overwritten by a relu that followed. The relu after a conv2d may have been made part of it,
// the dropout after it may have worked in place; neither looks at its output again.
struct BackwardArgs {
  const void* input = nullptr;
  const void* output = nullptr;
  // Only batch_norm with fuse_add and an activation writes here, see input_gradients.
  const void* output_gradient = nullptr;
  // May be `output_gradient` where LayerTraits::gradient_in_place, but not with fuse_add.
  void* input_gradient = nullptr;
  // concat: one per input, null where none is wanted. batch_norm with fuse_add and an
  // activation: of the input, and of the added one (may be `output_gradient`; or null).
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

// Forward and Backward queue work on Queue::kCompute, and return when that is done or earlier.
class Op {
 public:
  virtual ~Op() = default;
  virtual size_t state_bytes() const = 0;
  virtual size_t scratch_bytes() const = 0;
  virtual void Forward(const ForwardArgs& args) = 0;
  // Only after a Forward of the same op. Relu and add have none: the gradient of their output is,
  // as it is, that of each input.
  virtual void Backward(const BackwardArgs& args) = 0;
};

constexpr int32_t kNoLabel = -1;  // of a sample of weight zero

// All in the device's memory, as in ForwardArgs.
struct LossArgs {
  const void* logits = nullptr;  // [batch, outputs]
  // kNoLabel, or a class; of values (Layer::is_of_values) the bits of floats other than NaN.
  const int32_t* labels = nullptr;
  void* state = nullptr;  // from Forward to Backward; LossOp::state_bytes()
  // What the loss of a sample of each class is multiplied by. Null: nothing.
  const float* class_weights = nullptr;
  // Below 1: the loss is this share of the loss for the sample's own label, and for the rest that
  // for the label of the sample before it in the batch (of the first sample: of the last).
  float share = 1;

  constexpr int parts() const { return share < 1 ? 2 : 1; }
};

// A label of a sample, and what the loss for it is multiplied by.
struct WeightedLabel {
  int32_t label;
  float weight;
};
// The labels of sample n of a batch; part: 0, or 1 for that of the sample before. A label that is
// no class becomes kNoLabel. CUDA kernels call this, too.
constexpr WeightedLabel LabelOf(const LossArgs& args, int64_t batch, int64_t classes, int64_t n,
                                int part) {
  const int32_t label = args.labels[part == 0 ? n : (n + batch - 1) % batch];
  if (label < 0 || label >= classes) return {kNoLabel, 0};
  const float share = part == 0 ? args.share : 1 - args.share;
  return {label, args.class_weights == nullptr ? share : share * args.class_weights[label]};
}

// A loss and how often it was right. Queues its work as an op does.
class LossOp {
 public:
  virtual ~LossOp() = default;
  virtual size_t state_bytes() const = 0;
  // Writes to *sums, and, unless it is null, the class of the first largest logit of each sample to
  // `predictions`; both are in the device's memory. A logit that is not finite gives a loss that is
  // not.
  virtual void Forward(const LossArgs& args, LossSums* sums, int32_t* predictions) = 0;
  // Writes scale * d(sum of losses)/d(logits) of the last Forward, whose arguments must be the
  // same.
  virtual void Backward(const LossArgs& args, float scale, void* logits_gradient) = 0;
};

}  // namespace muster
