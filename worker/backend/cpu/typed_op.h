// The base class of this backend's ops: converts the untyped addresses of Op to those of
// activations, which are of type T: float, or Bf16 in worker.precision BF16.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "worker/backend/op.h"

namespace muster::cpu {

inline const float* Floats(const void* at) { return static_cast<const float*>(at); }
inline float* Floats(void* at) { return static_cast<float*>(at); }

// ForwardArgs and BackwardArgs with typed pointers.
template <typename T>
struct TypedForwardArgs {
  const T* input = nullptr;
  std::span<const T* const> inputs;
  T* output = nullptr;
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

template <typename T>
struct TypedBackwardArgs {
  const T* input = nullptr;
  const T* output = nullptr;
  const T* output_gradient = nullptr;
  T* input_gradient = nullptr;
  std::span<T* const> input_gradients;
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

template <typename T>
class TypedOp : public Op {
 public:
  virtual size_t state_floats() const { return 0; }
  virtual size_t scratch_floats() const { return 0; }
  virtual void ForwardTyped(const TypedForwardArgs<T>& args) = 0;
  virtual void BackwardTyped(const TypedBackwardArgs<T>& args) = 0;

  size_t state_bytes() const final { return state_floats() * sizeof(float); }
  size_t scratch_bytes() const final { return scratch_floats() * sizeof(float); }

  void Forward(const ForwardArgs& args) final {
    inputs_.clear();
    for (const void* const input : args.inputs) inputs_.push_back(static_cast<const T*>(input));
    ForwardTyped({.input = static_cast<const T*>(args.input),
                  .inputs = inputs_,
                  .output = static_cast<T*>(args.output),
                  .weights = args.weights,
                  .bias = args.bias,
                  .running_mean = args.running_mean,
                  .running_variance = args.running_variance,
                  .weights_version = args.weights_version,
                  .state = static_cast<float*>(args.state),
                  .scratch = static_cast<float*>(args.scratch),
                  .sample_ids = args.sample_ids,
                  .epoch = args.epoch});
  }

  void Backward(const BackwardArgs& args) final {
    gradients_.clear();
    for (void* const gradient : args.input_gradients) {
      gradients_.push_back(static_cast<T*>(gradient));
    }
    BackwardTyped({.input = static_cast<const T*>(args.input),
                   .output = static_cast<const T*>(args.output),
                   .output_gradient = static_cast<const T*>(args.output_gradient),
                   .input_gradient = static_cast<T*>(args.input_gradient),
                   .input_gradients = gradients_,
                   .weights = args.weights,
                   .bias = args.bias,
                   .weights_version = args.weights_version,
                   .weights_gradient = args.weights_gradient,
                   .bias_gradient = args.bias_gradient,
                   .mean_statistic = args.mean_statistic,
                   .variance_statistic = args.variance_statistic,
                   .statistic_weight = args.statistic_weight,
                   .state = static_cast<float*>(args.state),
                   .scratch = static_cast<float*>(args.scratch)});
  }

 private:
  // Members, so that only the first call allocates.
  std::vector<const T*> inputs_;
  std::vector<T*> gradients_;
};

}  // namespace muster::cpu
