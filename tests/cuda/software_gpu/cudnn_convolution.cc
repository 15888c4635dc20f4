// cuDNN on the software GPU: convolutions.
#include <fmt/format.h>

#include <functional>
#include <utility>
#include <vector>

#include "tests/cuda/software_gpu/access.h"
#include "tests/cuda/software_gpu/cudnn_problem.h"
#include "tests/cuda/software_gpu/gemm.h"

using namespace muster::software_gpu;  // NOLINT(google-build-using-namespace): C functions follow

namespace {

// The load width of tensor core kernels. The descriptors of these calls cannot declare less.
constexpr uintptr_t kTensorAlignment = 16;

// Calls visit(index in memory, index channels-last) for each element.
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

std::vector<float> Load(const ConvolutionProblem& p, const cudnnTensorStruct& tensor,
                        const void* data) {
  const bool tf32 =
      tensor.type == CUDNN_DATA_FLOAT && p.convolution.math != CUDNN_FMA_MATH && HasNarrowTypes();
  const void* const from = Device::Get().memory().Alias(data);
  std::vector<float> values(static_cast<size_t>(tensor.count()));
  ForElements(tensor, [&](int64_t at, size_t last) {
    const float value = LoadNumber(from, TypeOf(tensor), at);
    values[last] = tf32 ? RoundToTf32(value) : value;
  });
  return values;
}

// The operands and direction of one pass.
struct Pass {
  ConvolutionProblem problem;
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
  if (!ReadRange(work, pass.a, BytesOf(pass.a_type), Undefined::kRefused) ||
      !ReadRange(work, pass.b, BytesOf(pass.b_type), Undefined::kRefused) ||
      (pass.beta != 0 && !ReadRange(work, pass.to, BytesOf(pass.to_type), Undefined::kRefused)) ||
      !WriteRange(work, pass.to, BytesOf(pass.to_type))) {
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
    if (reinterpret_cast<uintptr_t>(tensor) % kTensorAlignment != 0) wrong = "a misaligned tensor";
  }
  if (memory.Contains(alpha) || memory.Contains(beta)) wrong = "alpha or beta is on the device";
  const size_t wanted = WorkspaceOf(pass.problem);
  if (pass.workspace.bytes < wanted) {
    wrong =
        fmt::format("a workspace of {} bytes (the call needs {})", pass.workspace.bytes, wanted);
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

}  // namespace

extern "C" {

cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(
    cudnnHandle_t, const cudnnTensorDescriptor_t x, const cudnnFilterDescriptor_t w,
    const cudnnConvolutionDescriptor_t convolution, const cudnnTensorDescriptor_t y,
    cudnnConvolutionFwdAlgo_t algorithm, size_t* bytes) {
  return DnnCall("cudnnGetConvolutionForwardWorkspaceSize", CallKind::kAnywhere, [&] {
    const ConvolutionProblem problem = {*x, *y, *w, *convolution};
    *bytes = WorkspaceOf(problem);
    return CheckProblem(problem, algorithm);
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
    const ConvolutionProblem problem = {*x_type, *y_type, *w_type, *convolution};
    const cudnnStatus_t status = CheckProblem(problem, algorithm);
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
    const ConvolutionProblem problem = {*dx, *dy, *w, *convolution};
    *bytes = WorkspaceOf(problem);
    return CheckProblem(problem, algorithm);
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
    const ConvolutionProblem problem = {*dx_type, *dy_type, *w_type, *convolution};
    const cudnnStatus_t status = CheckProblem(problem, algorithm);
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
    const ConvolutionProblem problem = {*x, *dy, *dw, *convolution};
    *bytes = WorkspaceOf(problem);
    return CheckProblem(problem, algorithm);
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
    const ConvolutionProblem problem = {*x_type, *dy_type, *dw_type, *convolution};
    const cudnnStatus_t status = CheckProblem(problem, algorithm);
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
