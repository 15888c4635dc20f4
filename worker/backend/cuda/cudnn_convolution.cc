// Convolutions by cuDNN, channels-last. Its algorithms are those that give the same bits each time;
// a convolution that they do not do is done otherwise.
#include <cuda_bf16.h>
#include <fmt/core.h>

#include <algorithm>
#include <cstdio>

#include "worker/backend/cuda/convolution.h"
#include "worker/backend/cuda/convolution_instances.h"
#include "worker/backend/cuda/cudnn.h"
#include "worker/backend/cuda/tuner.h"

namespace muster::cuda {
namespace {

// Without workspaces that are larger than what im2col takes.
constexpr size_t kMostScratch = size_t{256} << 20;

// The convolution in cuDNN's words.
class Descriptors {
 public:
  // Delegates, so that what is made goes where the rest fails.
  explicit Descriptors(const ConvolutionRequest& request) : Descriptors(*request.card.cudnn()) {
    cudnn_.Check(cudnn_->cudnnCreateTensorDescriptor(&in), "describe a tensor");
    cudnn_.Check(cudnn_->cudnnCreateTensorDescriptor(&out), "describe a tensor");
    cudnn_.Check(cudnn_->cudnnCreateFilterDescriptor(&weights), "describe filters");
    cudnn_.Check(cudnn_->cudnnCreateConvolutionDescriptor(&convolution), "describe a convolution");
    known = Describe(request);
  }
  ~Descriptors() {
    if (in != nullptr) (void)cudnn_->cudnnDestroyTensorDescriptor(in);
    if (out != nullptr) (void)cudnn_->cudnnDestroyTensorDescriptor(out);
    if (weights != nullptr) (void)cudnn_->cudnnDestroyFilterDescriptor(weights);
    if (convolution != nullptr) (void)cudnn_->cudnnDestroyConvolutionDescriptor(convolution);
  }
  Descriptors(const Descriptors&) = delete;

  cudnnTensorDescriptor_t in{}, out{};
  cudnnFilterDescriptor_t weights{};
  cudnnConvolutionDescriptor_t convolution{};
  bool known = false;  // false: cuDNN cannot say it

 private:
  explicit Descriptors(const Cudnn& cudnn) : cudnn_(cudnn) {}

  bool Describe(const ConvolutionRequest& request) const {
    const ConvShape& s = request.shape;
    const bool bf16 = request.card.activation_type() == ElementType::kBFloat16;
    const cudnnDataType_t type = bf16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
    // Fp32 is never silently TF32, which the default would allow.
    const bool fp32 = request.card.options().precision == CudaOptions::Precision::kFp32;
    const cudnnMathType_t math = fp32 ? CUDNN_FMA_MATH : CUDNN_TENSOR_OP_MATH;
    const auto good = [](cudnnStatus_t status) { return status == CUDNN_STATUS_SUCCESS; };
    return good(cudnn_->cudnnSetTensor4dDescriptor(in, CUDNN_TENSOR_NHWC, type, s.batch,
                                                   s.in_channels, s.in_height, s.in_width)) &&
           good(cudnn_->cudnnSetTensor4dDescriptor(out, CUDNN_TENSOR_NHWC, type, s.batch, s.filters,
                                                   s.out_height, s.out_width)) &&
           good(cudnn_->cudnnSetFilter4dDescriptor(weights, type, CUDNN_TENSOR_NHWC, s.filters,
                                                   s.group_channels(), s.kernel_height,
                                                   s.kernel_width)) &&
           good(cudnn_->cudnnSetConvolution2dDescriptor(
               convolution, s.pad_top, s.pad_left, s.stride_height, s.stride_width, 1, 1,
               CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT)) &&
           good(cudnn_->cudnnSetConvolutionGroupCount(convolution, s.groups)) &&
           good(cudnn_->cudnnSetConvolutionMathType(convolution, math));
  }

  const Cudnn& cudnn_;
};

// Null where cuDNN is not there, or pads differently before and behind.
std::unique_ptr<Descriptors> DescribeFor(const ConvolutionRequest& request) {
  const Pads& pads = request.pads;
  if (request.card.cudnn() == nullptr) return nullptr;
  if (pads.top != pads.bottom || pads.left != pads.right) return nullptr;
  auto descriptors = std::make_unique<Descriptors>(request);
  return descriptors->known ? std::move(descriptors) : nullptr;
}

// What the passes have in common.
struct CudnnPass {
  ConvolutionRequest request;
  std::unique_ptr<Descriptors> convolution;
  size_t workspace_bytes = 0;

  const Cudnn& cudnn() const { return *request.card.cudnn(); }
  auto forward() const { return static_cast<cudnnConvolutionFwdAlgo_t>(request.algorithm); }
  auto input() const { return static_cast<cudnnConvolutionBwdDataAlgo_t>(request.algorithm); }
  auto weights() const { return static_cast<cudnnConvolutionBwdFilterAlgo_t>(request.algorithm); }
  bool Takes(cudnnStatus_t status) const {
    return status == CUDNN_STATUS_SUCCESS && workspace_bytes <= kMostScratch;
  }
};

constexpr float kOne = 1, kZero = 0;

// The way to go if cuDNN refuses, when it is to convolve, what it took when it was asked for its
// workspace. None while algorithms are timed: one that is refused is then not chosen; and none that
// takes more memory than cuDNN may, for the columns of a large image.
template <typename Pass>
class Otherwise {
 public:
  Otherwise(const CudnnPass& pass, std::unique_ptr<Pass> way)
      : way_(IsTimed(pass) || way->scratch_bytes() > kMostScratch ? nullptr : std::move(way)) {}

  size_t scratch_bytes() const { return way_ == nullptr ? 0 : way_->scratch_bytes(); }
  // Null: cuDNN has done it, or is to do it. Throws what it says if that is no refusal.
  Pass* After(const Cudnn& cudnn, cudnnStatus_t status) {
    const bool refused = CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_NOT_SUPPORTED;
    if (way_ == nullptr || !refused) {
      cudnn.Check(status, "convolve");
      return nullptr;
    }
    fmt::print(stderr, "cuDNN does not do a convolution that it said it would: cuBLAS does it\n");
    taken_ = true;
    return way_.get();
  }
  Pass* Taken() { return taken_ ? way_.get() : nullptr; }

 private:
  static bool IsTimed(const CudnnPass& pass) {
    const Tuner* const tuner = pass.request.card.tuner();
    return tuner != nullptr && tuner->measures();
  }

  const std::unique_ptr<Pass> way_;
  bool taken_ = false;
};

template <typename T>
class CudnnForward : public ConvolutionForward {
 public:
  CudnnForward(CudnnPass pass, const TypedWeights<T>& weights)
      : pass_(std::move(pass)),
        weights_(weights),
        otherwise_(pass_, MakeGemmForward(pass_.request, weights)) {}
  size_t scratch_bytes() const override {
    return std::max(pass_.workspace_bytes, otherwise_.scratch_bytes());
  }
  void Run(const ForwardArgs& args) override {
    if (ConvolutionForward* const way = otherwise_.Taken()) return way->Run(args);
    const Descriptors& d = *pass_.convolution;
    const ConvShape& s = pass_.request.shape;
    const cudnnStatus_t status = pass_.cudnn()->cudnnConvolutionForward(
        pass_.cudnn().handle(), &kOne, d.in, args.input, d.weights,
        weights_.Weights(args.weights, args.weights_version), d.convolution, pass_.forward(),
        args.scratch, pass_.workspace_bytes, &kZero, d.out, args.output);
    if (ConvolutionForward* const way = otherwise_.After(pass_.cudnn(), status)) {
      return way->Run(args);
    }
    AddBias(pass_.request.card.target(), static_cast<T*>(args.output),
            pass_.request.use_bias ? args.bias : nullptr, pass_.request.relu,
            s.batch * s.out_pixels(), s.filters);
  }

 private:
  const CudnnPass pass_;
  const TypedWeights<T>& weights_;
  Otherwise<ConvolutionForward> otherwise_;
};

template <typename T>
class CudnnInputGradient : public ConvolutionBackward {
 public:
  CudnnInputGradient(CudnnPass pass, const TypedWeights<T>& weights)
      : pass_(std::move(pass)),
        weights_(weights),
        otherwise_(pass_, MakeGemmInputGradient(pass_.request, weights)) {}
  size_t scratch_bytes() const override {
    return std::max(pass_.workspace_bytes, otherwise_.scratch_bytes());
  }
  void Run(const BackwardArgs& args) override {
    if (ConvolutionBackward* const way = otherwise_.Taken()) return way->Run(args);
    const Descriptors& d = *pass_.convolution;
    const ConvShape& s = pass_.request.shape;
    const cudnnStatus_t status = pass_.cudnn()->cudnnConvolutionBackwardData(
        pass_.cudnn().handle(), &kOne, d.weights,
        weights_.Weights(args.weights, args.weights_version), d.out, args.output_gradient,
        d.convolution, pass_.input(), args.scratch, pass_.workspace_bytes, &kZero, d.in,
        args.input_gradient);
    if (ConvolutionBackward* const way = otherwise_.After(pass_.cudnn(), status)) {
      return way->Run(args);
    }
    if (!pass_.request.after_relu) return;
    MaskByRelu(pass_.request.card.target(), static_cast<T*>(args.input_gradient),
               static_cast<const T*>(args.input), s.batch * s.in_elements());
  }

 private:
  const CudnnPass pass_;
  const TypedWeights<T>& weights_;
  Otherwise<ConvolutionBackward> otherwise_;
};

// Of floats.
class CudnnWeightsGradient : public ConvolutionBackward {
 public:
  explicit CudnnWeightsGradient(CudnnPass pass)
      : pass_(std::move(pass)), otherwise_(pass_, MakeGemmWeightsGradient<float>(pass_.request)) {}
  size_t scratch_bytes() const override {
    return std::max(pass_.workspace_bytes, otherwise_.scratch_bytes());
  }
  void Run(const BackwardArgs& args) override {
    if (ConvolutionBackward* const way = otherwise_.Taken()) return way->Run(args);
    const Descriptors& d = *pass_.convolution;
    const cudnnStatus_t status = pass_.cudnn()->cudnnConvolutionBackwardFilter(
        pass_.cudnn().handle(), &kOne, d.in, args.input, d.out, args.output_gradient, d.convolution,
        pass_.weights(), args.scratch, pass_.workspace_bytes, &kZero, d.weights,
        args.weights_gradient);
    if (ConvolutionBackward* const way = otherwise_.After(pass_.cudnn(), status)) way->Run(args);
  }

 private:
  const CudnnPass pass_;
  Otherwise<ConvolutionBackward> otherwise_;
};

}  // namespace

// Not the direct one, which cuDNN does not have.
std::vector<int> CudnnForwardAlgorithms() {
  return {CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM,
          CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM,
          CUDNN_CONVOLUTION_FWD_ALGO_GEMM,
          CUDNN_CONVOLUTION_FWD_ALGO_FFT,
          CUDNN_CONVOLUTION_FWD_ALGO_FFT_TILING,
          CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD,
          CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED};
}
// Not 0, which adds in the order of chance.
std::vector<int> CudnnInputGradientAlgorithms() {
  return {CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT,
          CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT_TILING, CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD,
          CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD_NONFUSED};
}
// Not 0 and 3, for the same reason.
std::vector<int> CudnnWeightsGradientAlgorithms() {
  return {CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT,
          CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD_NONFUSED,
          CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT_TILING};
}

template <typename T>
std::unique_ptr<ConvolutionForward> MakeCudnnForward(const ConvolutionRequest& request,
                                                     const TypedWeights<T>& weights) {
  CudnnPass pass{request, DescribeFor(request)};
  if (pass.convolution == nullptr) return nullptr;
  const Descriptors& d = *pass.convolution;
  if (!pass.Takes(pass.cudnn()->cudnnGetConvolutionForwardWorkspaceSize(
          pass.cudnn().handle(), d.in, d.weights, d.convolution, d.out, pass.forward(),
          &pass.workspace_bytes))) {
    return nullptr;
  }
  return std::make_unique<CudnnForward<T>>(std::move(pass), weights);
}

template <typename T>
std::unique_ptr<ConvolutionBackward> MakeCudnnInputGradient(const ConvolutionRequest& request,
                                                            const TypedWeights<T>& weights) {
  CudnnPass pass{request, DescribeFor(request)};
  if (pass.convolution == nullptr) return nullptr;
  const Descriptors& d = *pass.convolution;
  if (!pass.Takes(pass.cudnn()->cudnnGetConvolutionBackwardDataWorkspaceSize(
          pass.cudnn().handle(), d.weights, d.out, d.convolution, d.in, pass.input(),
          &pass.workspace_bytes))) {
    return nullptr;
  }
  return std::make_unique<CudnnInputGradient<T>>(std::move(pass), weights);
}

template <typename T>
std::unique_ptr<ConvolutionBackward> MakeCudnnWeightsGradient(const ConvolutionRequest& request) {
  // Of bfloat16 activations the gradient would be bfloat16, too.
  if (sizeof(T) != sizeof(float)) return nullptr;
  CudnnPass pass{request, DescribeFor(request)};
  if (pass.convolution == nullptr) return nullptr;
  const Descriptors& d = *pass.convolution;
  if (!pass.Takes(pass.cudnn()->cudnnGetConvolutionBackwardFilterWorkspaceSize(
          pass.cudnn().handle(), d.in, d.out, d.convolution, d.weights, pass.weights(),
          &pass.workspace_bytes))) {
    return nullptr;
  }
  return std::make_unique<CudnnWeightsGradient>(std::move(pass));
}

MUSTER_INSTANTIATE_CONVOLUTIONS(Cudnn)

}  // namespace muster::cuda
