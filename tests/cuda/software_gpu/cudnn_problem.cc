#include "tests/cuda/software_gpu/cudnn_problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "tests/cuda/software_gpu/device.h"
#include "tests/cuda/software_gpu/gemm.h"

namespace muster::software_gpu {
namespace {

// Returns the program's error, or "".
std::string WrongProblem(const ConvolutionProblem& p) {
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

// Whether cuDNN has a deterministic kernel for it.
bool IsSupported(const ConvolutionProblem& p) {
  if (p.x.type == CUDNN_DATA_BFLOAT16 && !HasNarrowTypes()) return false;
  return p.x.type == p.w.type && p.x.type == p.y.type && p.x.format == p.w.format &&
         p.x.format == p.y.format && p.convolution.compute == CUDNN_DATA_FLOAT &&
         p.convolution.mode == CUDNN_CROSS_CORRELATION;
}

cudnnStatus_t CheckAll(const ConvolutionProblem& p, bool deterministic, bool known) {
  const std::string wrong = WrongProblem(p);
  if (!wrong.empty()) return RefuseDnn(CUDNN_STATUS_BAD_PARAM, wrong);
  if (!deterministic) {
    return RefuseDnn(CUDNN_STATUS_NOT_SUPPORTED, "a nondeterministic algorithm");
  }
  return known && IsSupported(p) ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED;
}

}  // namespace

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

ConvolutionShape ShapeOf(const ConvolutionProblem& p) {
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

cudnnStatus_t CheckProblem(const ConvolutionProblem& p, cudnnConvolutionFwdAlgo_t algorithm) {
  return CheckAll(p, true,
                  algorithm == CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM ||
                      algorithm == CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM);
}

cudnnStatus_t CheckProblem(const ConvolutionProblem& p, cudnnConvolutionBwdDataAlgo_t algorithm) {
  return CheckAll(p, algorithm != CUDNN_CONVOLUTION_BWD_DATA_ALGO_0,
                  algorithm == CUDNN_CONVOLUTION_BWD_DATA_ALGO_1);
}

cudnnStatus_t CheckProblem(const ConvolutionProblem& p, cudnnConvolutionBwdFilterAlgo_t algorithm) {
  return CheckAll(p,
                  algorithm != CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0 &&
                      algorithm != CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3,
                  algorithm == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1);
}

}  // namespace muster::software_gpu
