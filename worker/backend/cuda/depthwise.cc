#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "worker/backend/cuda/convolution.h"

namespace muster::cuda {
namespace {

// The grid limits the number of window positions (blockIdx.z).
bool Fits(const ConvShape& shape) {
  return shape.groups > 1 && shape.group_channels() == 1 &&
         int64_t{shape.kernel_height} * shape.kernel_width <= 65535;
}

template <typename T>
class DepthwiseForward : public ConvolutionForward {
 public:
  explicit DepthwiseForward(const ConvolutionRequest& request) : request_(request) {}
  size_t scratch_bytes() const override { return 0; }
  void Run(const ForwardArgs& args) override {
    Depthwise(request_.card.target(), request_.shape, static_cast<const T*>(args.input),
              args.weights, request_.use_bias ? args.bias : nullptr, request_.relu,
              static_cast<T*>(args.output));
  }

 private:
  const ConvolutionRequest request_;
};

template <typename T>
class DepthwiseInput : public ConvolutionBackward {
 public:
  explicit DepthwiseInput(const ConvolutionRequest& request) : request_(request) {}
  size_t scratch_bytes() const override { return 0; }
  void Run(const BackwardArgs& args) override {
    DepthwiseInputGradient(request_.card.target(), request_.shape,
                           static_cast<const T*>(args.output_gradient), args.weights,
                           request_.after_relu ? static_cast<const T*>(args.input) : nullptr,
                           static_cast<T*>(args.input_gradient));
  }

 private:
  const ConvolutionRequest request_;
};

template <typename T>
class DepthwiseWeights : public ConvolutionBackward {
 public:
  explicit DepthwiseWeights(const ConvolutionRequest& request) : request_(request) {}
  size_t scratch_bytes() const override { return DepthwiseScratchBytes(request_.shape); }
  void Run(const BackwardArgs& args) override {
    DepthwiseWeightsGradient(request_.card.target(), request_.shape,
                             static_cast<const T*>(args.input),
                             static_cast<const T*>(args.output_gradient),
                             static_cast<double*>(args.scratch), args.weights_gradient);
  }

 private:
  const ConvolutionRequest request_;
};

}  // namespace

template <typename T>
std::unique_ptr<ConvolutionForward> MakeDepthwiseForward(const ConvolutionRequest& request) {
  if (!Fits(request.shape)) return nullptr;
  return std::make_unique<DepthwiseForward<T>>(request);
}
template <typename T>
std::unique_ptr<ConvolutionBackward> MakeDepthwiseInputGradient(const ConvolutionRequest& request) {
  if (!Fits(request.shape)) return nullptr;
  return std::make_unique<DepthwiseInput<T>>(request);
}
template <typename T>
std::unique_ptr<ConvolutionBackward> MakeDepthwiseWeightsGradient(
    const ConvolutionRequest& request) {
  if (!Fits(request.shape)) return nullptr;
  return std::make_unique<DepthwiseWeights<T>>(request);
}

#define MUSTER_INSTANTIATE(T)                                                                      \
  template std::unique_ptr<ConvolutionForward> MakeDepthwiseForward<T>(const ConvolutionRequest&); \
  template std::unique_ptr<ConvolutionBackward> MakeDepthwiseInputGradient<T>(                     \
      const ConvolutionRequest&);                                                                  \
  template std::unique_ptr<ConvolutionBackward> MakeDepthwiseWeightsGradient<T>(                   \
      const ConvolutionRequest&);
MUSTER_FOR_ELEMENTS(MUSTER_INSTANTIATE)

}  // namespace muster::cuda
