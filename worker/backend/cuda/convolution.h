// The three passes of a convolution, each of which may be done in another way. conv2d.cc chooses;
// the makers are where the ways are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "worker/backend/cuda/kernels.h"
#include "worker/backend/cuda/ops.h"
#include "worker/backend/cuda/weight_copies.h"

namespace muster::cuda {

// Made with all it needs; allocates nothing when it runs. All addresses are the card's; those of
// activations are of its activation type. Bias, activation and the derivative of a relu before are
// the pass's, too. The passes of an op run one after the other in the same scratch.
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

// What a pass is made from. It keeps a copy; card and weights must outlive it.
struct ConvolutionRequest {
  Card& card;
  ConvShape shape;
  Pads pads;
  bool use_bias, relu;
  bool after_relu;  // OpOptions::input_is_relu
};

// `pass` ("forward") and the numbers of the convolution.
std::string ConvolutionKey(const char* pass, const ConvolutionRequest& request);

// By im2col and cuBLAS, for any convolution.
template <typename T>
std::unique_ptr<ConvolutionForward> MakeGemmForward(const ConvolutionRequest& request,
                                                    const TypedWeights<T>& weights);
template <typename T>
std::unique_ptr<ConvolutionBackward> MakeGemmInputGradient(const ConvolutionRequest& request,
                                                           const TypedWeights<T>& weights);
template <typename T>
std::unique_ptr<ConvolutionBackward> MakeGemmWeightsGradient(const ConvolutionRequest& request);

// By cuDNN; null where it is not there or does not do this convolution in this type.
template <typename T>
std::unique_ptr<ConvolutionForward> MakeCudnnForward(const ConvolutionRequest& request,
                                                     const TypedWeights<T>& weights);
template <typename T>
std::unique_ptr<ConvolutionBackward> MakeCudnnInputGradient(const ConvolutionRequest& request,
                                                            const TypedWeights<T>& weights);
template <typename T>
std::unique_ptr<ConvolutionBackward> MakeCudnnWeightsGradient(const ConvolutionRequest& request);

// By own kernels; null unless each group has one input channel.
template <typename T>
std::unique_ptr<ConvolutionForward> MakeDepthwiseForward(const ConvolutionRequest& request);
template <typename T>
std::unique_ptr<ConvolutionBackward> MakeDepthwiseInputGradient(const ConvolutionRequest& request);
template <typename T>
std::unique_ptr<ConvolutionBackward> MakeDepthwiseWeightsGradient(
    const ConvolutionRequest& request);

}  // namespace muster::cuda
