// The base class of this backend's ops: converts the untyped addresses of Op to floats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "worker/backend/op.h"

namespace muster::cpu {

// ForwardArgs and BackwardArgs with float pointers.
struct FloatForwardArgs {
  const float* input = nullptr;
  std::span<const float* const> inputs;
  float* output = nullptr;
  const float* weights = nullptr;
  const float* bias = nullptr;
  const float* running_mean = nullptr;
  const float* running_variance = nullptr;
  int64_t weights_version = 0;
  float* state = nullptr;
  float* scratch = nullptr;
  const int64_t* sample_ids = nullptr;
  int64_t epoch = 0;
};

struct FloatBackwardArgs {
  const float* input = nullptr;
  const float* output = nullptr;
  const float* output_gradient = nullptr;
  float* input_gradient = nullptr;
  std::span<float* const> input_gradients;
  const float* weights = nullptr;
  const float* bias = nullptr;
  int64_t weights_version = 0;
  float* weights_gradient = nullptr;
  float* bias_gradient = nullptr;
  float* mean_statistic = nullptr;
  float* variance_statistic = nullptr;
  float statistic_weight = 0;
  float* state = nullptr;
  float* scratch = nullptr;
};

class FloatOp : public Op {
 public:
  virtual size_t state_floats() const { return 0; }
  virtual size_t scratch_floats() const { return 0; }
  virtual void ForwardFloats(const FloatForwardArgs& args) = 0;
  virtual void BackwardFloats(const FloatBackwardArgs& args) = 0;

  size_t state_bytes() const final { return state_floats() * sizeof(float); }
  size_t scratch_bytes() const final { return scratch_floats() * sizeof(float); }

  void Forward(const ForwardArgs& args) final {
    inputs_.clear();
    for (const void* const input : args.inputs) inputs_.push_back(Floats(input));
    ForwardFloats({.input = Floats(args.input),
                   .inputs = inputs_,
                   .output = Floats(args.output),
                   .weights = args.weights,
                   .bias = args.bias,
                   .running_mean = args.running_mean,
                   .running_variance = args.running_variance,
                   .weights_version = args.weights_version,
                   .state = Floats(args.state),
                   .scratch = Floats(args.scratch),
                   .sample_ids = args.sample_ids,
                   .epoch = args.epoch});
  }

  void Backward(const BackwardArgs& args) final {
    gradients_.clear();
    for (void* const gradient : args.input_gradients) gradients_.push_back(Floats(gradient));
    BackwardFloats({.input = Floats(args.input),
                    .output = Floats(args.output),
                    .output_gradient = Floats(args.output_gradient),
                    .input_gradient = Floats(args.input_gradient),
                    .input_gradients = gradients_,
                    .weights = args.weights,
                    .bias = args.bias,
                    .weights_version = args.weights_version,
                    .weights_gradient = args.weights_gradient,
                    .bias_gradient = args.bias_gradient,
                    .mean_statistic = args.mean_statistic,
                    .variance_statistic = args.variance_statistic,
                    .statistic_weight = args.statistic_weight,
                    .state = Floats(args.state),
                    .scratch = Floats(args.scratch)});
  }

 private:
  static const float* Floats(const void* at) { return static_cast<const float*>(at); }
  static float* Floats(void* at) { return static_cast<float*>(at); }

  // Members, so that only the first call allocates.
  std::vector<const float*> inputs_;
  std::vector<float*> gradients_;
};

}  // namespace muster::cpu
