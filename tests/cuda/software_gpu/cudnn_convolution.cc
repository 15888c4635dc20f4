// cuDNN on the software GPU: convolutions.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "tests/cuda/software_gpu/access.h"
#include "tests/cuda/software_gpu/cudnn.h"
#include "tests/cuda/software_gpu/gemm.h"

using namespace muster::software_gpu;  // NOLINT(google-build-using-namespace): C functions follow

namespace {

// The load width of tensor core kernels. The descriptors of these calls cannot declare less.
constexpr uintptr_t kTensorAlignment = 16;

enum class Algorithm { kSupported, kUnsupported, kNondeterministic };

Algorithm KindOf(cudnnConvolutionFwdAlgo_t algorithm) {
  return algorithm == CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM ||
                 algorithm == CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM
             ? Algorithm::kSupported
             : Algorithm::kUnsupported;
}
Algorithm KindOf(cudnnConvolutionBwdDataAlgo_t algorithm) {
  if (algorithm == CUDNN_CONVOLUTION_BWD_DATA_ALGO_0) return Algorithm::kNondeterministic;
  return algorithm == CUDNN_CONVOLUTION_BWD_DATA_ALGO_1 ? Algorithm::kSupported
                                                        : Algorithm::kUnsupported;
}
Algorithm KindOf(cudnnConvolutionBwdFilterAlgo_t algorithm) {
  if (algorithm == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0 ||
      algorithm == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3) {
    return Algorithm::kNondeterministic;
  }
  return algorithm == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1 ? Algorithm::kSupported
                                                          : Algorithm::kUnsupported;
}

cudaDataType TypeOf(const cudnnTensorStruct& tensor) {
  if (tensor.type == CUDNN_DATA_HALF) return CUDA_R_16F;
  return tensor.type == CUDNN_DATA_FLOAT ? CUDA_R_32F : CUDA_R_16BF;
}

size_t BytesOf(const cudnnTensorStruct& tensor) {
  return static_cast<size_t>(tensor.count()) * SizeOf(TypeOf(tensor));
}

size_t WorkspaceOf(const ConvolutionProblem& p) {
  const size_t wanted = Device::Get().options().cudnn_workspace_bytes;
  if (wanted > 0) return wanted;
  return std::min(size_t{1} << 20, BytesOf(p.w) / 256 * 256 + 1024);
}

// 0 if the filter does not fit.
int64_t OutputSize(int64_t size, int64_t filter, int64_t pad, int64_t stride) {
  const int64_t rest = size + 2 * pad - filter;
  return rest < 0 ? 0 : rest / stride + 1;
}

// Wrong shapes and nondeterministic algorithms are violations. Convolutions that cuDNN does not
// support are not.
cudnnStatus_t Check(const ConvolutionProblem& p, Algorithm algorithm) {
  const cudnnConvolutionStruct& c = p.convolution;
  if (p.w.c * c.groups != p.x.c || p.w.n % c.groups != 0) {
    return Refuse(CUDNN_STATUS_BAD_PARAM, fmt::format("{} channels, {} filters of {}, {} groups",
                                                      p.x.c, p.w.n, p.w.c, c.groups));
  }
  const int64_t h = OutputSize(p.x.h, p.w.h, c.pad_height, c.stride_height);
  const int64_t w = OutputSize(p.x.w, p.w.w, c.pad_width, c.stride_width);
  if (p.y.n != p.x.n || p.y.c != p.w.n || p.y.h != h || p.y.w != w) {
    return Refuse(CUDNN_STATUS_BAD_PARAM,
                  fmt::format("an output of {} x {} x {} x {} (expected {} x {} x {} x {})", p.y.n,
                              p.y.c, p.y.h, p.y.w, p.x.n, p.w.n, h, w));
  }
  if (algorithm == Algorithm::kNondeterministic) {
    return Refuse(CUDNN_STATUS_NOT_SUPPORTED, "a nondeterministic algorithm");
  }
  const bool good = algorithm == Algorithm::kSupported && p.x.type == p.w.type &&
                    p.x.type == p.y.type && (p.x.type != CUDNN_DATA_BFLOAT16 || HasNarrowTypes());
  return good ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED;
}

cudnnStatus_t WorkspaceSize(const char* call, const ConvolutionProblem& problem,
                            Algorithm algorithm, size_t* bytes) {
  return DnnCall(call, [&] {
    *bytes = WorkspaceOf(problem);
    return Check(problem, algorithm);
  });
}

struct Pass {
  const char* call;
  ConvolutionPass pass;
  ConvolutionProblem problem;
  std::array<void*, 3> data;  // x, w and y
  Workspace workspace;
};

void Run(const Pass& pass, const Work& work) {
  SpoilWorkspace(work, pass.workspace);
  const ConvolutionProblem& p = pass.problem;
  const std::array<const cudnnTensorStruct*, 3> tensors = {&p.x, &p.w, &p.y};
  const auto result = static_cast<size_t>(pass.pass);
  std::array<std::vector<float>, 3> numbers;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const cudnnTensorStruct& tensor = *tensors[i];
    numbers[i].resize(static_cast<size_t>(tensor.count()));
    if (i == result) continue;
    if (!ReadRange(work, pass.data[i], BytesOf(tensor), Undefined::kRefused)) return;
    const void* const from = Device::Get().memory().Alias(pass.data[i]);
    const bool tf32 =
        tensor.type == CUDNN_DATA_FLOAT && p.convolution.math != CUDNN_FMA_MATH && HasNarrowTypes();
    for (size_t at = 0; at < numbers[i].size(); ++at) {
      const float number = LoadNumber(from, TypeOf(tensor), static_cast<int64_t>(at));
      numbers[i][at] = tf32 ? RoundToTf32(number) : number;
    }
  }
  if (!WriteRange(work, pass.data[result], BytesOf(*tensors[result]))) return;
  Convolve(p, pass.pass, numbers);
  void* const to = Device::Get().memory().Alias(pass.data[result]);
  for (size_t at = 0; at < numbers[result].size(); ++at) {
    StoreNumber(to, TypeOf(*tensors[result]), static_cast<int64_t>(at), numbers[result][at]);
  }
}

cudnnStatus_t Enqueue(cudnnHandle_t handle, Pass pass, Algorithm algorithm, const void* alpha,
                      const void* beta) {
  return DnnCall(pass.call, [&] {
    const cudnnStatus_t status = Check(pass.problem, algorithm);
    if (status != CUDNN_STATUS_SUCCESS) return status;
    std::string wrong;
    if (!Device::Get().IsTracked(handle)) wrong = "no such handle";
    for (const void* tensor : pass.data) {
      if (!Device::Get().memory().Contains(tensor)) wrong = "a tensor that is not on the device";
      if (reinterpret_cast<uintptr_t>(tensor) % kTensorAlignment != 0)
        wrong = "a misaligned tensor";
    }
    if (*static_cast<const float*>(alpha) != 1 || *static_cast<const float*>(beta) != 0) {
      wrong = "factors other than 1 and 0, which no convolution of ours has";
    }
    const size_t wanted = WorkspaceOf(pass.problem);
    if (pass.workspace.bytes < wanted) {
      wrong =
          fmt::format("a workspace of {} bytes (the call needs {})", pass.workspace.bytes, wanted);
    }
    pass.workspace.bytes = wanted;
    if (wrong.empty()) wrong = WrongWorkspace(pass.workspace, kTensorAlignment);
    if (!wrong.empty()) {
      return Refuse(CUDNN_STATUS_BAD_PARAM, fmt::format("{}: {}", pass.call, wrong));
    }
    Stream* const stream = Device::Get().Find(handle->stream, pass.call);
    if (stream == nullptr) return CUDNN_STATUS_BAD_PARAM;
    stream->Push(Device::Get().known(), pass.call, nullptr,
                 [pass](const Work& work) { Run(pass, work); });
    return CUDNN_STATUS_SUCCESS;
  });
}

void* Address(const void* data) { return const_cast<void*>(data); }

}  // namespace

extern "C" {

cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(
    cudnnHandle_t, const cudnnTensorDescriptor_t x, const cudnnFilterDescriptor_t w,
    const cudnnConvolutionDescriptor_t convolution, const cudnnTensorDescriptor_t y,
    cudnnConvolutionFwdAlgo_t algorithm, size_t* bytes) {
  return WorkspaceSize("cudnnGetConvolutionForwardWorkspaceSize", {*x, *w, *y, *convolution},
                       KindOf(algorithm), bytes);
}
cudnnStatus_t cudnnGetConvolutionBackwardDataWorkspaceSize(
    cudnnHandle_t, const cudnnFilterDescriptor_t w, const cudnnTensorDescriptor_t dy,
    const cudnnConvolutionDescriptor_t convolution, const cudnnTensorDescriptor_t dx,
    cudnnConvolutionBwdDataAlgo_t algorithm, size_t* bytes) {
  return WorkspaceSize("cudnnGetConvolutionBackwardDataWorkspaceSize", {*dx, *w, *dy, *convolution},
                       KindOf(algorithm), bytes);
}
cudnnStatus_t cudnnGetConvolutionBackwardFilterWorkspaceSize(
    cudnnHandle_t, const cudnnTensorDescriptor_t x, const cudnnTensorDescriptor_t dy,
    const cudnnConvolutionDescriptor_t convolution, const cudnnFilterDescriptor_t dw,
    cudnnConvolutionBwdFilterAlgo_t algorithm, size_t* bytes) {
  return WorkspaceSize("cudnnGetConvolutionBackwardFilterWorkspaceSize",
                       {*x, *dw, *dy, *convolution}, KindOf(algorithm), bytes);
}

cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle, const void* alpha,
                                      const cudnnTensorDescriptor_t x_type, const void* x,
                                      const cudnnFilterDescriptor_t w_type, const void* w,
                                      const cudnnConvolutionDescriptor_t convolution,
                                      cudnnConvolutionFwdAlgo_t algorithm, void* workspace,
                                      size_t workspace_bytes, const void* beta,
                                      const cudnnTensorDescriptor_t y_type, void* y) {
  return Enqueue(handle,
                 {"cudnnConvolutionForward",
                  ConvolutionPass::kY,
                  {*x_type, *w_type, *y_type, *convolution},
                  {Address(x), Address(w), y},
                  {workspace, workspace_bytes}},
                 KindOf(algorithm), alpha, beta);
}
cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t handle, const void* alpha,
                                           const cudnnFilterDescriptor_t w_type, const void* w,
                                           const cudnnTensorDescriptor_t dy_type, const void* dy,
                                           const cudnnConvolutionDescriptor_t convolution,
                                           cudnnConvolutionBwdDataAlgo_t algorithm, void* workspace,
                                           size_t workspace_bytes, const void* beta,
                                           const cudnnTensorDescriptor_t dx_type, void* dx) {
  return Enqueue(handle,
                 {"cudnnConvolutionBackwardData",
                  ConvolutionPass::kX,
                  {*dx_type, *w_type, *dy_type, *convolution},
                  {dx, Address(w), Address(dy)},
                  {workspace, workspace_bytes}},
                 KindOf(algorithm), alpha, beta);
}
cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t handle, const void* alpha,
                                             const cudnnTensorDescriptor_t x_type, const void* x,
                                             const cudnnTensorDescriptor_t dy_type, const void* dy,
                                             const cudnnConvolutionDescriptor_t convolution,
                                             cudnnConvolutionBwdFilterAlgo_t algorithm,
                                             void* workspace, size_t workspace_bytes,
                                             const void* beta,
                                             const cudnnFilterDescriptor_t dw_type, void* dw) {
  return Enqueue(handle,
                 {"cudnnConvolutionBackwardFilter",
                  ConvolutionPass::kW,
                  {*x_type, *dw_type, *dy_type, *convolution},
                  {Address(x), dw, Address(dy)},
                  {workspace, workspace_bytes}},
                 KindOf(algorithm), alpha, beta);
}
}
