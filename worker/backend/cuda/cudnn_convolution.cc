// Channels-last convolutions by cuDNN, with one deterministic algorithm for each pass. Each pass is
// tried once when it is made, which is before the first step; unsupported passes are left to other
// implementations. A later failure is an error, never a change of arithmetic.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>

#include "worker/backend/cuda/await.h"
#include "worker/backend/cuda/check.h"
#include "worker/backend/cuda/convolution.h"
#include "worker/backend/cuda/convolution_instances.h"
#include "worker/backend/cuda/cudnn.h"
#include "worker/backend/cuda/handles.h"

namespace muster::cuda {
namespace {

cudnnDataType_t DnnTypeOf(ElementType type) {
  if (type == ElementType::kFloat16) return CUDNN_DATA_HALF;
  return type == ElementType::kBFloat16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
}

// The largest allowed workspace, by the shape alone, so that all workers choose alike. Some kernels
// transpose what they read and write, FP32's in NHWC among them, so they need as much as both.
size_t MostWorkspace(const ConvolutionRequest& request) {
  constexpr size_t kLeast = size_t{256} << 20;
  constexpr size_t kMost = size_t{4} << 30;
  const ConvShape& s = request.shape;
  const auto elements =
      static_cast<size_t>(s.batch * (s.in_elements() + s.out_pixels() * s.filters));
  return std::clamp(2 * elements * BytesOf(request.card.activation_type()), kLeast, kMost);
}

constexpr double kPatience = 60;  // seconds, for the trial of a pass
constexpr auto kForward = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;
constexpr auto kInputGradient = CUDNN_CONVOLUTION_BWD_DATA_ALGO_1;
constexpr auto kWeightsGradient = CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1;

// Whether cuDNN takes the request, before the first step. It says no in many ways: BAD_PARAM for
// combinations that it cannot run, INTERNAL_ERROR where it cannot compile a kernel. Throws an Error
// for failures that do not depend on the shape and may not happen to other workers: of memory, of
// the GPU.
bool IsSupported(const Cudnn& cudnn, cudnnStatus_t status, const char* what) {
  const bool is_of_this_worker = status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
                                 status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED ||
                                 CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_EXECUTION_FAILED;
  if (is_of_this_worker) cudnn.Check(status, what);
  return status == CUDNN_STATUS_SUCCESS;
}

// cuDNN's descriptors of the convolution.
class Descriptors {
 public:
  // Delegates, so that the destructor frees the descriptors if the rest fails.
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
  bool known = false;  // false if cuDNN cannot describe it

 private:
  explicit Descriptors(const Cudnn& cudnn) : cudnn_(cudnn) {}

  bool Describe(const ConvolutionRequest& request) const {
    const ConvShape& s = request.shape;
    const cudnnDataType_t type = DnnTypeOf(request.card.activation_type());
    // FP32 must not silently become TF32, which the default would allow.
    const bool fp32 = request.card.options().precision == CudaOptions::Precision::kFp32;
    const cudnnMathType_t math = fp32 ? CUDNN_FMA_MATH : CUDNN_TENSOR_OP_MATH;
    const auto good = [&](cudnnStatus_t status) {
      if (IsSupported(cudnn_, status, "describe a convolution")) return true;
      fmt::print(stderr, "cuDNN cannot describe the convolution \"{}\" ({}): using cuBLAS\n",
                 ConvolutionKey("of", request), cudnn_->cudnnGetErrorString(status));
      return false;
    };
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

// Returns null if cuDNN is missing or cannot describe the convolution, or if the padding before and
// after differs.
std::unique_ptr<Descriptors> DescribeFor(const ConvolutionRequest& request) {
  const Pads& pads = request.pads;
  if (request.card.cudnn() == nullptr) return nullptr;
  if (pads.top != pads.bottom || pads.left != pads.right) return nullptr;
  auto descriptors = std::make_unique<Descriptors>(request);
  return descriptors->known ? std::move(descriptors) : nullptr;
}

constexpr float kOne = 1, kZero = 0;

size_t Aligned(size_t bytes) { return (bytes + 255) / 256 * 256; }

// The common part of the passes.
struct CudnnPass {
  ConvolutionRequest request;
  std::unique_ptr<Descriptors> convolution;
  size_t workspace_bytes = 0;

  const Cudnn& cudnn() const { return *request.card.cudnn(); }
  bool Takes(const char* name, cudnnStatus_t status) const {
    if (!IsSupported(cudnn(), status, "plan a convolution")) return Refuses(name, status);
    const size_t most = MostWorkspace(request);
    if (workspace_bytes <= most) return true;
    fmt::print(stderr,
               "cuDNN needs {} bytes for the convolution \"{}\", more than {}: using cuBLAS\n",
               workspace_bytes, ConvolutionKey(name, request), most);
    return false;
  }
  bool Refuses(const char* name, cudnnStatus_t status) const {
    fmt::print(stderr,
               "cuDNN does not do the convolution \"{}\" with {} bytes of workspace ({}): using "
               "cuBLAS\n",
               ConvolutionKey(name, request), workspace_bytes,
               cudnn()->cudnnGetErrorString(status));
    return false;
  }

  cudnnStatus_t Forward(const void* in, const void* w, void* out, void* scratch) const {
    const Descriptors& d = *convolution;
    return cudnn()->cudnnConvolutionForward(cudnn().handle(), &kOne, d.in, in, d.weights, w,
                                            d.convolution, kForward, scratch, workspace_bytes,
                                            &kZero, d.out, out);
  }
  cudnnStatus_t InputGradient(void* in, const void* w, const void* out, void* scratch) const {
    const Descriptors& d = *convolution;
    return cudnn()->cudnnConvolutionBackwardData(cudnn().handle(), &kOne, d.weights, w, d.out, out,
                                                 d.convolution, kInputGradient, scratch,
                                                 workspace_bytes, &kZero, d.in, in);
  }
  cudnnStatus_t WeightsGradient(const void* in, void* w, const void* out, void* scratch) const {
    const Descriptors& d = *convolution;
    return cudnn()->cudnnConvolutionBackwardFilter(cudnn().handle(), &kOne, d.in, in, d.out, out,
                                                   d.convolution, kWeightsGradient, scratch,
                                                   workspace_bytes, &kZero, d.weights, w);
  }
};

// Tries a pass once on zeros. Returns false if cuDNN does not support it, and true without a trial
// if there is no memory for it.
template <typename Run>
bool IsDone(const char* name, const CudnnPass& pass, const Run& run) {
  Card& card = pass.request.card;
  const ConvShape& s = pass.request.shape;
  const auto bytes_of = [&](int64_t count) {
    return Aligned(static_cast<size_t>(count) * BytesOf(card.activation_type()));
  };
  const size_t in = bytes_of(s.batch * s.in_elements());
  const size_t weights = bytes_of(int64_t{s.filters} * s.patch());
  const size_t out = bytes_of(s.batch * s.out_pixels() * s.filters);
  const size_t bytes = in + weights + out + pass.workspace_bytes;
  if (bytes > card.memory_use().available) return true;
  const ExpectInScope watched(card.watchdog(), "finish a convolution");
  void* address = nullptr;
  const cudaError_t allocated = cudaMalloc(&address, bytes);
  if (allocated == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    return true;
  }
  Check(allocated, "allocate memory to try a convolution");
  const DeviceMemory memory(address);
  const cudaStream_t stream = card.stream(Queue::kCompute);
  const EventHandle end = MakeEventHandle();
  Check(cudaMemsetAsync(address, 0, bytes, stream), "clear memory");
  auto* const at = static_cast<std::byte*>(address);
  const cudnnStatus_t status = run(at, at + in, at + in + weights, at + in + weights + out);
  Check(cudaEventRecord(end.get(), stream), "record an event");
  if (!AwaitEvent(end.get(), kPatience)) {
    throw Error(ExitCode::kFailure,
                "this worker's GPU did not finish a convolution within {:.0f} s", kPatience);
  }
  return IsSupported(pass.cudnn(), status, "convolve") || pass.Refuses(name, status);
}

template <typename T>
class CudnnForward : public ConvolutionForward {
 public:
  CudnnForward(CudnnPass pass, const TypedWeights<T>& weights)
      : pass_(std::move(pass)), weights_(weights) {}
  size_t scratch_bytes() const override { return pass_.workspace_bytes; }
  void Run(const ForwardArgs& args) override {
    const ConvShape& s = pass_.request.shape;
    const void* const weights = weights_.Weights(args.weights);
    pass_.cudnn().Check(pass_.Forward(args.input, weights, args.output, args.scratch), "convolve");
    AddBias(pass_.request.card.target(), static_cast<T*>(args.output),
            pass_.request.use_bias ? args.bias : nullptr, pass_.request.relu,
            s.batch * s.out_pixels(), s.filters);
  }

 private:
  const CudnnPass pass_;
  const TypedWeights<T>& weights_;
};

template <typename T>
class CudnnInputGradient : public ConvolutionBackward {
 public:
  CudnnInputGradient(CudnnPass pass, const TypedWeights<T>& weights)
      : pass_(std::move(pass)), weights_(weights) {}
  size_t scratch_bytes() const override { return pass_.workspace_bytes; }
  void Run(const BackwardArgs& args) override {
    const ConvShape& s = pass_.request.shape;
    const void* const weights = weights_.Weights(args.weights);
    pass_.cudnn().Check(
        pass_.InputGradient(args.input_gradient, weights, args.output_gradient, args.scratch),
        "convolve");
    if (!pass_.request.after_relu) return;
    MaskByRelu(pass_.request.card.target(), static_cast<T*>(args.input_gradient),
               static_cast<const T*>(args.input), s.batch * s.in_elements());
  }

 private:
  const CudnnPass pass_;
  const TypedWeights<T>& weights_;
};

// With 16-bit activations cuDNN adds in 32 bits and rounds the sums to their type, as PyTorch's
// autocast does. They lie in front of the workspace, and are widened at the end.
template <typename T>
class CudnnWeightsGradient : public ConvolutionBackward {
 public:
  explicit CudnnWeightsGradient(CudnnPass pass) : pass_(std::move(pass)) {}
  size_t scratch_bytes() const override { return SumsBytes() + pass_.workspace_bytes; }
  void Run(const BackwardArgs& args) override {
    auto* const sums = static_cast<std::byte*>(args.scratch);
    void* const to = kRounds ? static_cast<void*>(sums) : args.weights_gradient;
    pass_.cudnn().Check(
        pass_.WeightsGradient(args.input, to, args.output_gradient, sums + SumsBytes()),
        "convolve");
    if constexpr (kRounds) {
      Convert(pass_.request.card.target(), args.weights_gradient, static_cast<const T*>(to),
              Count());
    }
  }

 private:
  static constexpr bool kRounds = sizeof(T) != sizeof(float);
  int64_t Count() const {
    return int64_t{pass_.request.shape.filters} * pass_.request.shape.patch();
  }
  size_t SumsBytes() const {
    return kRounds ? Aligned(static_cast<size_t>(Count()) * sizeof(T)) : 0;
  }

  const CudnnPass pass_;
};

}  // namespace

template <typename T>
std::unique_ptr<ConvolutionForward> MakeCudnnForward(const ConvolutionRequest& request,
                                                     const TypedWeights<T>& weights) {
  CudnnPass pass{request, DescribeFor(request)};
  if (pass.convolution == nullptr) return nullptr;
  const Descriptors& d = *pass.convolution;
  if (!pass.Takes("forward", pass.cudnn()->cudnnGetConvolutionForwardWorkspaceSize(
                                 pass.cudnn().handle(), d.in, d.weights, d.convolution, d.out,
                                 kForward, &pass.workspace_bytes))) {
    return nullptr;
  }
  const auto run = [&](void* in, void* w, void* out, void* scratch) {
    return pass.Forward(in, w, out, scratch);
  };
  if (!IsDone("forward", pass, run)) return nullptr;
  return std::make_unique<CudnnForward<T>>(std::move(pass), weights);
}

template <typename T>
std::unique_ptr<ConvolutionBackward> MakeCudnnInputGradient(const ConvolutionRequest& request,
                                                            const TypedWeights<T>& weights) {
  CudnnPass pass{request, DescribeFor(request)};
  if (pass.convolution == nullptr) return nullptr;
  const Descriptors& d = *pass.convolution;
  if (!pass.Takes("input", pass.cudnn()->cudnnGetConvolutionBackwardDataWorkspaceSize(
                               pass.cudnn().handle(), d.weights, d.out, d.convolution, d.in,
                               kInputGradient, &pass.workspace_bytes))) {
    return nullptr;
  }
  const auto run = [&](void* in, void* w, void* out, void* scratch) {
    return pass.InputGradient(in, w, out, scratch);
  };
  if (!IsDone("input", pass, run)) return nullptr;
  return std::make_unique<CudnnInputGradient<T>>(std::move(pass), weights);
}

template <typename T>
std::unique_ptr<ConvolutionBackward> MakeCudnnWeightsGradient(const ConvolutionRequest& request) {
  CudnnPass pass{request, DescribeFor(request)};
  if (pass.convolution == nullptr) return nullptr;
  const Descriptors& d = *pass.convolution;
  if (!pass.Takes("weights", pass.cudnn()->cudnnGetConvolutionBackwardFilterWorkspaceSize(
                                 pass.cudnn().handle(), d.in, d.out, d.convolution, d.weights,
                                 kWeightsGradient, &pass.workspace_bytes))) {
    return nullptr;
  }
  const auto run = [&](void* in, void* w, void* out, void* scratch) {
    return pass.WeightsGradient(in, w, out, scratch);
  };
  if (!IsDone("weights", pass, run)) return nullptr;
  return std::make_unique<CudnnWeightsGradient<T>>(std::move(pass));
}

MUSTER_INSTANTIATE_CONVOLUTIONS(Cudnn)

}  // namespace muster::cuda
