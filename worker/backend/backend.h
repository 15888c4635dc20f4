// What a device must offer so that worker/nn can run a network on it: memory, and one op for each
// layer of the graph, made for a given batch size and mode.
//
// Backends are twins: each honours all of this, and nn knows of no other difference. An op makes
// everything it needs (kernels, descriptors, layouts) when it is made; Forward and Backward
// allocate nothing. Activations are channels-last: [batch, height, width, channels].
//
// Owner and thread: a backend, its ops and its buffers are used by one thread, the one that calls
// Enter. Failures: a shape that the device's library cannot do is an Error (kFailure) from MakeOp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "common/graph.h"

namespace muster {

enum class Mode { kTraining, kInference };

// Sums over the samples of one input (not divided by anything).
struct LossSums {
  double loss = 0;
  int64_t correct = 0;       // the largest logit is the label's; a tie is not
  int64_t correct_top5 = 0;  // fewer than five logits are as large as the label's, or larger
};

// What an op is made for.
struct OpOptions {
  int64_t batch = 0;
  Mode mode = Mode::kTraining;
  // conv2d and dense: y = max(0, ...).
  bool fuse_relu = false;
  // False: nobody upstream is trained, and Backward writes no input gradient.
  bool input_gradient = true;
  // The input is the output of a relu: Backward also multiplies by that relu's derivative (zero
  // where the input is not above zero). So no relu ever needs a backward pass of its own.
  bool input_is_relu = false;
  // dropout: what its random numbers are keyed by.
  uint64_t seed = 0;
  int layer = 0;
};

// Addresses are in the device's memory, except those marked host.
struct ForwardArgs {
  const float* input = nullptr;
  float* output = nullptr;  // may be `input` for relu and dropout
  const float* weights = nullptr;
  const float* bias = nullptr;
  int64_t weights_version = 0;  // see Tower::Forward
  float* state = nullptr;       // kept until Backward; Op::state_floats()
  float* scratch = nullptr;     // shared by all ops; Op::scratch_floats()
  const int64_t* sample_ids = nullptr;  // host; dropout
  int64_t epoch = 0;                    // dropout
};

// `input`, `output`, `weights`, `state`: as Forward left them, with two exceptions: the outputs of
// conv2d and dense may have been overwritten in place by the relu or dropout that follows.
struct BackwardArgs {
  const float* input = nullptr;
  const float* output = nullptr;
  const float* output_gradient = nullptr;
  float* input_gradient = nullptr;  // may be `output_gradient` for dropout
  const float* weights = nullptr;
  int64_t weights_version = 0;
  float* weights_gradient = nullptr;  // gradients are written, not added
  float* bias_gradient = nullptr;
  float* state = nullptr;
  float* scratch = nullptr;
};

class Op {
 public:
  virtual ~Op() = default;
  virtual size_t state_floats() const { return 0; }
  virtual size_t scratch_floats() const { return 0; }
  virtual void Forward(const ForwardArgs& args) = 0;
  // Only after a Forward of the same op. Relu has none: see OpOptions::input_is_relu.
  virtual void Backward(const BackwardArgs& args) = 0;
};

// Softmax and cross entropy. A sample with label -1 has weight zero.
class LossOp {
 public:
  virtual ~LossOp() = default;
  virtual size_t state_floats() const = 0;
  // logits: [batch, classes]; labels: host. A logit that is not finite gives a loss that is not.
  virtual LossSums Forward(const float* logits, const int32_t* labels, float* state) = 0;
  // Writes scale * d(sum of losses)/d(logits) of the last Forward, whose labels must still be there.
  virtual void Backward(float scale, const float* logits, const int32_t* labels,
                        const float* state, float* logits_gradient) = 0;
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
  // Any layer but flatten (which moves nothing) and the loss.
  virtual std::unique_ptr<Op> MakeOp(const Layer& layer, const OpOptions& options) = 0;
  virtual std::unique_ptr<LossOp> MakeLoss(const Layer& layer, const OpOptions& options) = 0;
};

}  // namespace muster
