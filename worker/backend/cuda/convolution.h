// The three passes of a convolution. Each may use a different implementation, chosen in conv2d.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "worker/backend/cuda/kernels.h"
#include "worker/backend/cuda/ops.h"
#include "worker/backend/cuda/weight_copies.h"

namespace muster::cuda {

// Run allocates nothing. All addresses are on the GPU; activations have the GPU's activation type.
// A pass also applies the bias, the activation, and the derivative of a preceding relu. The passes
// of an op run one after the other in the same scratch.
class ConvolutionForward {
 public:
  virtual ~ConvolutionForward() = default;
  virtual size_t scratch_bytes() const = 0;
  virtual void Run(const ForwardArgs& args) = 0;
};
class ConvolutionBackward {
 public:
  virtual ~ConvolutionBackward() = default;
  virtual size_t scratch_bytes() const = 0;
  virtual void Run(const BackwardArgs& args) = 0;
};

// The parameters of a pass, which copies them; `card` and the weights must outlive it.
struct ConvolutionRequest {
  Card& card;
  ConvShape shape;
  Pads pads;
  bool use_bias, relu;
  bool after_relu;  // OpOptions::input_is_relu
};

// Returns text that names `pass` (such as "forward") and the parameters of the convolution.
std::string ConvolutionKey(const char* pass, const ConvolutionRequest& request);

// These passes use im2col and cuBLAS and support any convolution.
template <typename T>
std::unique_ptr<ConvolutionForward> MakeGemmForward(const ConvolutionRequest& request,
                                                    const TypedWeights<T>& weights);
template <typename T>
std::unique_ptr<ConvolutionBackward> MakeGemmInputGradient(const ConvolutionRequest& request,
                                                           const TypedWeights<T>& weights);
template <typename T>
std::unique_ptr<ConvolutionBackward> MakeGemmWeightsGradient(const ConvolutionRequest& request);

// These passes use cuDNN. Null if cuDNN is missing or does not support this convolution in this
// type.
template <typename T>
std::unique_ptr<ConvolutionForward> MakeCudnnForward(const ConvolutionRequest& request,
                                                     const TypedWeights<T>& weights);
template <typename T>
std::unique_ptr<ConvolutionBackward> MakeCudnnInputGradient(const ConvolutionRequest& request,
                                                            const TypedWeights<T>& weights);
template <typename T>
std::unique_ptr<ConvolutionBackward> MakeCudnnWeightsGradient(const ConvolutionRequest& request);

// These passes use our own kernels. Null unless there are several groups with one input channel
// each.
template <typename T>
std::unique_ptr<ConvolutionForward> MakeDepthwiseForward(const ConvolutionRequest& request);
template <typename T>
std::unique_ptr<ConvolutionBackward> MakeDepthwiseInputGradient(const ConvolutionRequest& request);
template <typename T>
std::unique_ptr<ConvolutionBackward> MakeDepthwiseWeightsGradient(
    const ConvolutionRequest& request);

}  // namespace muster::cuda
