// What a device must offer so that worker/nn can run a network on it: memory, and one op for each
// layer of the graph, made for a given batch size and mode.
//
// Backends are twins: each honours all of this, and nn knows of no other difference. An op makes
// everything it needs (kernels, descriptors) when it is made, and says how much memory it wants;
// Forward and Backward allocate nothing. Activations are channels-last: [batch, height, width,
// channels].
//
// Owner and thread: a backend, its ops and its buffers are used by one thread, the one that calls
// Enter. Failures: a shape that the device's library cannot do is an Error (kFailure) from MakeOp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "common/graph/graph.h"

namespace muster {

enum class Mode { kTraining, kInference };

// Sums over the samples of one input (not divided by anything).
struct LossSums {
  double loss = 0;
  int64_t correct = 0;       // the largest logit is the label's; a tie is not
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
  // Of all copies that the ops made so far need, allocated or not.
  virtual size_t bytes() const = 0;
  // Allocates those that are not yet. Before the first Forward of the ops that need them.
  virtual void Allocate() = 0;
};

// What an op applies to its result, in the same pass.
enum class Activation { kNone, kRelu, kRelu6 };

// What an op is made for.
//
// Who multiplies a gradient by the derivative of an activation: batch_norm that of its own; relu6,
// as an op, its own. A relu has no backward: whether it is an op or part of conv2d, dense or add,
// its derivative (zero where its output is not above zero) belongs to whoever writes the gradient
// of its output: the one op that reads it (input_is_relu), or Backend::AddGradients.
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
  // Only for conv2d, dense, max_pool, avg_pool, lrn, dropout and the losses.
  bool input_is_relu = false;
  // dropout: what its random numbers are keyed by.
  uint64_t seed = 0;
  // The layer's index: also what its copies in `layouts` are found by.
  int layer = 0;
  // Of this backend. Null: the op keeps copies of its own, allocated when it is made.
  WeightLayouts* layouts = nullptr;
};

// Addresses are in the device's memory, except those marked host.
struct ForwardArgs {
  const float* input = nullptr;
  std::span<const float* const> inputs;  // host; add, concat, batch_norm with fuse_add: all of them
  float* output = nullptr;               // may be `input` for relu, relu6 and dropout
  const float* weights = nullptr;        // batch_norm: scale
  const float* bias = nullptr;           // batch_norm: shift
  const float* running_mean = nullptr;   // batch_norm, in inference
  const float* running_variance = nullptr;
  int64_t weights_version = 0;          // see Tower::Forward
  float* state = nullptr;               // kept until Backward; Op::state_floats()
  float* scratch = nullptr;             // shared by all ops; Op::scratch_floats()
  const int64_t* sample_ids = nullptr;  // host; dropout
  int64_t epoch = 0;                    // dropout
};

// `weights` and `state`: as Forward left them. `input` and `output` too, but only where Backward
// reads them; otherwise there may be anything at that address:
//   input:  conv2d, dense, lrn, batch_norm; avg_pool with input_is_relu
//   output: relu6, softmax; batch_norm with fuse_add and an activation; dropout with input_is_relu
//           (may have been overwritten by a relu that followed)
// The relu after a conv2d may have been made part of it, the dropout after it may have worked in
// place; neither looks at its output again.
struct BackwardArgs {
  const float* input = nullptr;
  const float* output = nullptr;
  // Only batch_norm with fuse_add and an activation writes here, see input_gradients.
  const float* output_gradient = nullptr;
  float* input_gradient = nullptr;  // may be `output_gradient` for dropout, relu6, softmax and
                                    // batch_norm without fuse_add
  // Host. concat: one per input, null where none is wanted. batch_norm with fuse_add and an
  // activation: of the input, and of the added one (may be `output_gradient`; or null).
  std::span<float* const> input_gradients;
  const float* weights = nullptr;
  const float* bias = nullptr;  // batch_norm
  int64_t weights_version = 0;
  float* weights_gradient = nullptr;  // gradients are written, not added
  float* bias_gradient = nullptr;
  // batch_norm: mean and variance of the batch, times statistic_weight.
  float* mean_statistic = nullptr;
  float* variance_statistic = nullptr;
  float statistic_weight = 0;
  float* state = nullptr;
  float* scratch = nullptr;
};

class Op {
 public:
  virtual ~Op() = default;
  virtual size_t state_floats() const { return 0; }
  virtual size_t scratch_floats() const { return 0; }
  virtual void Forward(const ForwardArgs& args) = 0;
  // Only after a Forward of the same op. Relu and add have none: the gradient of their output is,
  // as it is, that of each input.
  virtual void Backward(const BackwardArgs& args) = 0;
};

// A loss and how often it was right. A sample with label -1 has weight zero.
class LossOp {
 public:
  virtual ~LossOp() = default;
  virtual size_t state_floats() const = 0;
  // logits: [batch, classes]; labels: host. A logit that is not finite gives a loss that is not.
  // predictions: host; null, or room for the class of the first largest logit of each sample.
  virtual LossSums Forward(const float* logits, const int32_t* labels, float* state,
                           int32_t* predictions) = 0;
  // Writes scale * d(sum of losses)/d(logits) of the last Forward, whose labels must still be
  // there.
  virtual void Backward(float scale, const float* logits, const int32_t* labels, const float* state,
                        float* logits_gradient) = 0;
};

// Floats in the memory of the device, 64-byte aligned, freed with the object.
class DeviceBuffer {
 public:
  virtual ~DeviceBuffer() = default;
  virtual float* data() = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;
  // Called first whenever the tower starts to work: the calling thread is the one that computes.
  virtual void Enter() = 0;
  virtual std::unique_ptr<DeviceBuffer> Allocate(size_t floats) = 0;
  virtual std::unique_ptr<WeightLayouts> MakeWeightLayouts() = 0;
  // Any layer but flatten (which moves nothing) and the loss.
  virtual std::unique_ptr<Op> MakeOp(const Layer& layer, const OpOptions& options) = 0;
  virtual std::unique_ptr<LossOp> MakeLoss(const Layer& layer, const OpOptions& options) = 0;
  // to = a + b, or a where b is null; zero where relu_output is given and not above zero.
  // `to` may be a or b.
  virtual void AddGradients(float* to, const float* a, const float* b, const float* relu_output,
                            int64_t floats) = 0;
};

}  // namespace muster
