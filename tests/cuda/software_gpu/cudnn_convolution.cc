// cuDNN on the software GPU: convolutions.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "tests/cuda/software_gpu/access.h"
#include "tests/cuda/software_gpu/cudnn_descriptors.h"
#include "tests/cuda/software_gpu/gemm.h"

using namespace muster::software_gpu;  // NOLINT(google-build-using-namespace): C functions follow

namespace {

// All that a convolution is about. Copies: descriptors are the caller's again after a call.
struct Problem {
  cudnnTensorStruct x, y;
  cudnnFilterStruct w;
  cudnnConvolutionStruct convolution;
};

cudaDataType TypeOf(const cudnnTensorStruct& tensor) {
  return tensor.type == CUDNN_DATA_FLOAT ? CUDA_R_32F : CUDA_R_16BF;
}

size_t Bytes(const cudnnTensorStruct& tensor) {
  return static_cast<size_t>(tensor.count()) * SizeOf(TypeOf(tensor));
}

// What the program got wrong. Empty: nothing.
std::string WrongProblem(const Problem& p) {
  const cudnnConvolutionStruct& c = p.convolution;
  if (p.w.c * c.groups != p.x.c || p.w.n % c.groups != 0) {
    return fmt::format("{} channels, {} filters of {} channels, {} groups", p.x.c, p.w.n, p.w.c,
                       c.groups);
  }
  const int64_t h = OutputSize(p.x.h, p.w.h, c.pad_height, c.stride_height, c.dilation_height);
  const int64_t w = OutputSize(p.x.w, p.w.w, c.pad_width, c.stride_width, c.dilation_width);
  if (p.y.n != p.x.n || p.y.c != p.w.n || p.y.h != h || p.y.w != w) {
    return fmt::format("an output of {} x {} x {} x {} (expected {} x {} x {} x {})", p.y.n, p.y.c,
                       p.y.h, p.y.w, p.x.n, p.w.n, h, w);
  }
  return "";
}

// Whether cuDNN has a kernel for it, which gives the same bits each time.
bool IsSupported(const Problem& p) {
  return p.x.type == p.w.type && p.x.type == p.y.type && p.x.format == p.w.format &&
         p.x.format == p.y.format && p.convolution.compute == CUDNN_DATA_FLOAT &&
         p.convolution.mode == CUDNN_CROSS_CORRELATION;
}

size_t WorkspaceOf(const Problem& p) {
  return std::min(size_t{1} << 20, Bytes(p.w) / 256 * 256 + 1024);
}

cudnnStatus_t CheckAll(const Problem& p, bool deterministic, bool known) {
  const std::string wrong = WrongProblem(p);
  if (!wrong.empty()) return RefuseDnn(CUDNN_STATUS_BAD_PARAM, wrong);
  if (!deterministic) {
    return RefuseDnn(CUDNN_STATUS_NOT_SUPPORTED, "an algorithm that gives other bits each time");
  }
  return known && IsSupported(p) ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED;
}

ConvolutionShape ShapeOf(const Problem& p) {
  const cudnnConvolutionStruct& c = p.convolution;
  return {.batch = p.x.n,
          .height = p.x.h,
          .width = p.x.w,
          .channels = p.x.c,
          .out_height = p.y.h,
          .out_width = p.y.w,
          .filters = p.w.n,
          .filter_height = p.w.h,
          .filter_width = p.w.w,
          .pad_height = c.pad_height,
          .pad_width = c.pad_width,
          .stride_height = c.stride_height,
          .stride_width = c.stride_width,
          .dilation_height = c.dilation_height,
          .dilation_width = c.dilation_width,
          .groups = c.groups};
}

// Calls with (index in memory, index channels-last) of each element.
template <typename F>
void ForElements(const cudnnTensorStruct& t, const F& visit) {
  int64_t at = 0;
  if (t.format == CUDNN_TENSOR_NHWC) {
    for (; at < t.count(); ++at) visit(at, static_cast<size_t>(at));
    return;
  }
  for (int64_t n = 0; n < t.n; ++n) {
    for (int64_t c = 0; c < t.c; ++c) {
      for (int64_t i = 0; i < t.h * t.w; ++i) {
        visit(at++, static_cast<size_t>((n * t.h * t.w + i) * t.c + c));
      }
    }
  }
}

std::vector<float> Load(const Problem& p, const cudnnTensorStruct& tensor, const void* data) {
  const bool tf32 = tensor.type == CUDNN_DATA_FLOAT && p.convolution.math != CUDNN_FMA_MATH;
  const void* const from = Device::Get().memory().Alias(data);
  std::vector<float> values(static_cast<size_t>(tensor.count()));
  ForElements(tensor, [&](int64_t at, size_t last) {
    const float value = LoadNumber(from, TypeOf(tensor), at);
    values[last] = tf32 ? RoundToTf32(value) : value;
  });
  return values;
}

// One pass: what is read, what is written, and how.
struct Pass {
  Problem problem;
  cudnnTensorStruct a_type, b_type, to_type;
  const void* a = nullptr;
  const void* b = nullptr;
  void* to = nullptr;
  float alpha = 1, beta = 0;
  Workspace workspace;
  std::function<void(const ConvolutionShape&, const std::vector<float>&, const std::vector<float>&,
                     std::vector<float>&)>
      convolve;
};

void Run(const Pass& pass, const Work& work) {
  SpoilWorkspace(work, pass.workspace);
  if (!ReadRange(work, pass.a, Bytes(pass.a_type), Undefined::kRefused) ||
      !ReadRange(work, pass.b, Bytes(pass.b_type), Undefined::kRefused) ||
      (pass.beta != 0 && !ReadRange(work, pass.to, Bytes(pass.to_type), Undefined::kRefused)) ||
      !WriteRange(work, pass.to, Bytes(pass.to_type))) {
    return;
  }
  std::vector<float> result(static_cast<size_t>(pass.to_type.count()));
  pass.convolve(ShapeOf(pass.problem), Load(pass.problem, pass.a_type, pass.a),
                Load(pass.problem, pass.b_type, pass.b), result);
  void* const to = Device::Get().memory().Alias(pass.to);
  ForElements(pass.to_type, [&](int64_t at, size_t last) {
    float value = pass.alpha * result[last];
    if (pass.beta != 0) value += pass.beta * LoadNumber(to, TypeOf(pass.to_type), at);
    StoreNumber(to, TypeOf(pass.to_type), at, value);
  });
}

cudnnStatus_t Enqueue(cudnnHandle_t handle, const char* call, const Pass& pass, const void* alpha,
                      const void* beta) {
  const DeviceMemory& memory = Device::Get().memory();
  std::string wrong;
  if (!Device::Get().IsTracked(handle)) wrong = "no such handle";
  for (const void* tensor : {pass.a, pass.b, static_cast<const void*>(pass.to)}) {
    if (!memory.Contains(tensor)) wrong = "a tensor that is not in the device's memory";
    if (reinterpret_cast<uintptr_t>(tensor) % 4 != 0 && pass.problem.x.type == CUDNN_DATA_FLOAT) {
      wrong = "a misaligned tensor";
    }
  }
  if (memory.Contains(alpha) || memory.Contains(beta)) wrong = "alpha or beta is on the device";
  const size_t wanted = WorkspaceOf(pass.problem);
  if (pass.workspace.bytes < wanted) {
    wrong =
        fmt::format("a workspace of {} bytes (the call wants {})", pass.workspace.bytes, wanted);
  } else if (wrong.empty()) {
    wrong = WrongWorkspace({pass.workspace.data, wanted}, 16);
  }
  if (!wrong.empty()) {
    return RefuseDnn(CUDNN_STATUS_BAD_PARAM, fmt::format("{}: {}", call, wrong));
  }
  Stream* const stream = Device::Get().Find(handle->stream, call);
  if (stream == nullptr) return CUDNN_STATUS_BAD_PARAM;
  Pass scaled = pass;
  scaled.workspace.bytes = wanted;
  scaled.alpha = *static_cast<const float*>(alpha);
  scaled.beta = *static_cast<const float*>(beta);
  stream->Push(Device::Get().known(), call, nullptr,
               [pass = std::move(scaled)](const Work& work) { Run(pass, work); });
  return CUDNN_STATUS_SUCCESS;
}

bool IsKnown(cudnnConvolutionFwdAlgo_t algorithm) {
  return algorithm == CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM ||
         algorithm == CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;
}
bool IsDeterministic(cudnnConvolutionBwdDataAlgo_t algorithm) {
  return algorithm != CUDNN_CONVOLUTION_BWD_DATA_ALGO_0;
}
bool IsKnown(cudnnConvolutionBwdDataAlgo_t algorithm) {
  return algorithm == CUDNN_CONVOLUTION_BWD_DATA_ALGO_1;
}
bool IsDeterministic(cudnnConvolutionBwdFilterAlgo_t algorithm) {
  return algorithm != CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0 &&
         algorithm != CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3;
}
bool IsKnown(cudnnConvolutionBwdFilterAlgo_t algorithm) {
  return algorithm == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1;
}

}  // namespace

extern "C" {

cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(
    cudnnHandle_t, const cudnnTensorDescriptor_t x, const cudnnFilterDescriptor_t w,
    const cudnnConvolutionDescriptor_t convolution, const cudnnTensorDescriptor_t y,
    cudnnConvolutionFwdAlgo_t algorithm, size_t* bytes) {
  return DnnCall("cudnnGetConvolutionForwardWorkspaceSize", CallKind::kAnywhere, [&] {
    const Problem problem = {*x, *y, *w, *convolution};
    *bytes = WorkspaceOf(problem);
    return CheckAll(problem, true, IsKnown(algorithm));
  });
}

cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle, const void* alpha,
                                      const cudnnTensorDescriptor_t x_type, const void* x,
                                      const cudnnFilterDescriptor_t w_type, const void* w,
                                      const cudnnConvolutionDescriptor_t convolution,
                                      cudnnConvolutionFwdAlgo_t algorithm, void* workspace,
                                      size_t workspace_bytes, const void* beta,
                                      const cudnnTensorDescriptor_t y_type, void* y) {
  return DnnCall("cudnnConvolutionForward", CallKind::kAnywhere, [&] {
    const Problem problem = {*x_type, *y_type, *w_type, *convolution};
    const cudnnStatus_t status = CheckAll(problem, true, IsKnown(algorithm));
    if (status != CUDNN_STATUS_SUCCESS) return status;
    return Enqueue(handle, "cudnnConvolutionForward",
                   {.problem = problem,
                    .a_type = *x_type,
                    .b_type = *w_type,
                    .to_type = *y_type,
                    .a = x,
                    .b = w,
                    .to = y,
                    .workspace = {workspace, workspace_bytes},
                    .convolve = ConvolveForward},
                   alpha, beta);
  });
}

cudnnStatus_t cudnnGetConvolutionBackwardDataWorkspaceSize(
    cudnnHandle_t, const cudnnFilterDescriptor_t w, const cudnnTensorDescriptor_t dy,
    const cudnnConvolutionDescriptor_t convolution, const cudnnTensorDescriptor_t dx,
    cudnnConvolutionBwdDataAlgo_t algorithm, size_t* bytes) {
  return DnnCall("cudnnGetConvolutionBackwardDataWorkspaceSize", CallKind::kAnywhere, [&] {
    const Problem problem = {*dx, *dy, *w, *convolution};
    *bytes = WorkspaceOf(problem);
    return CheckAll(problem, IsDeterministic(algorithm), IsKnown(algorithm));
  });
}

cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t handle, const void* alpha,
                                           const cudnnFilterDescriptor_t w_type, const void* w,
                                           const cudnnTensorDescriptor_t dy_type, const void* dy,
                                           const cudnnConvolutionDescriptor_t convolution,
                                           cudnnConvolutionBwdDataAlgo_t algorithm, void* workspace,
                                           size_t workspace_bytes, const void* beta,
                                           const cudnnTensorDescriptor_t dx_type, void* dx) {
  return DnnCall("cudnnConvolutionBackwardData", CallKind::kAnywhere, [&] {
    const Problem problem = {*dx_type, *dy_type, *w_type, *convolution};
    const cudnnStatus_t status = CheckAll(problem, IsDeterministic(algorithm), IsKnown(algorithm));
    if (status != CUDNN_STATUS_SUCCESS) return status;
    return Enqueue(handle, "cudnnConvolutionBackwardData",
                   {.problem = problem,
                    .a_type = *w_type,
                    .b_type = *dy_type,
                    .to_type = *dx_type,
                    .a = w,
                    .b = dy,
                    .to = dx,
                    .workspace = {workspace, workspace_bytes},
                    .convolve = ConvolveBackwardData},
                   alpha, beta);
  });
}

cudnnStatus_t cudnnGetConvolutionBackwardFilterWorkspaceSize(
    cudnnHandle_t, const cudnnTensorDescriptor_t x, const cudnnTensorDescriptor_t dy,
    const cudnnConvolutionDescriptor_t convolution, const cudnnFilterDescriptor_t dw,
    cudnnConvolutionBwdFilterAlgo_t algorithm, size_t* bytes) {
  return DnnCall("cudnnGetConvolutionBackwardFilterWorkspaceSize", CallKind::kAnywhere, [&] {
    const Problem problem = {*x, *dy, *dw, *convolution};
    *bytes = WorkspaceOf(problem);
    return CheckAll(problem, IsDeterministic(algorithm), IsKnown(algorithm));
  });
}

cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t handle, const void* alpha,
                                             const cudnnTensorDescriptor_t x_type, const void* x,
                                             const cudnnTensorDescriptor_t dy_type, const void* dy,
                                             const cudnnConvolutionDescriptor_t convolution,
                                             cudnnConvolutionBwdFilterAlgo_t algorithm,
                                             void* workspace, size_t workspace_bytes,
                                             const void* beta,
                                             const cudnnFilterDescriptor_t dw_type, void* dw) {
  return DnnCall("cudnnConvolutionBackwardFilter", CallKind::kAnywhere, [&] {
    const Problem problem = {*x_type, *dy_type, *dw_type, *convolution};
    const cudnnStatus_t status = CheckAll(problem, IsDeterministic(algorithm), IsKnown(algorithm));
    if (status != CUDNN_STATUS_SUCCESS) return status;
    return Enqueue(handle, "cudnnConvolutionBackwardFilter",
                   {.problem = problem,
                    .a_type = *x_type,
                    .b_type = *dy_type,
                    .to_type = *dw_type,
                    .a = x,
                    .b = dy,
                    .to = dw,
                    .workspace = {workspace, workspace_bytes},
                    .convolve = ConvolveBackwardFilter},
                   alpha, beta);
  });
}
}
