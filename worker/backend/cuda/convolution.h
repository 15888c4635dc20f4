// The three passes of a convolution. Each may use another implementation, chosen in conv2d.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "worker/backend/cuda/kernels.h"
#include "worker/backend/cuda/ops.h"
#include "worker/backend/cuda/weight_copies.h"

namespace muster::cuda {

// Allocates nothing in Run. All addresses are on the GPU; activations have the GPU's activation
// type. A pass also applies the bias, the activation, and the derivative of a relu before it. The
// passes of an op run one after the other in the same scratch.
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

// `pass` ("forward") and the parameters of the convolution.
std::string ConvolutionKey(const char* pass, const ConvolutionRequest& request);

// im2col and cuBLAS, for any convolution.
template <typename T>
std::unique_ptr<ConvolutionForward> MakeGemmForward(const ConvolutionRequest& request,
                                                    const TypedWeights<T>& weights);
template <typename T>
std::unique_ptr<ConvolutionBackward> MakeGemmInputGradient(const ConvolutionRequest& request,
                                                           const TypedWeights<T>& weights);
template <typename T>
std::unique_ptr<ConvolutionBackward> MakeGemmWeightsGradient(const ConvolutionRequest& request);

// cuDNN. Null if it is missing or does not support this convolution in this type.
template <typename T>
std::unique_ptr<ConvolutionForward> MakeCudnnForward(const ConvolutionRequest& request,
                                                     const TypedWeights<T>& weights);
template <typename T>
std::unique_ptr<ConvolutionBackward> MakeCudnnInputGradient(const ConvolutionRequest& request,
                                                            const TypedWeights<T>& weights);
template <typename T>
std::unique_ptr<ConvolutionBackward> MakeCudnnWeightsGradient(const ConvolutionRequest& request);

// Own kernels. Null unless each group has one input channel.
template <typename T>
std::unique_ptr<ConvolutionForward> MakeDepthwiseForward(const ConvolutionRequest& request);
template <typename T>
std::unique_ptr<ConvolutionBackward> MakeDepthwiseInputGradient(const ConvolutionRequest& request);
template <typename T>
std::unique_ptr<ConvolutionBackward> MakeDepthwiseWeightsGradient(
    const ConvolutionRequest& request);

}  // namespace muster::cuda
