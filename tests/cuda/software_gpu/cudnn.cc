// cuDNN on the software GPU: handles and descriptors.
#include "tests/cuda/software_gpu/cudnn.h"

#include <fmt/format.h>

using namespace muster::software_gpu;  // NOLINT(google-build-using-namespace): C functions follow

namespace {

constexpr cudnnStatus_t kDnnFailed = CUDNN_STATUS_EXECUTION_FAILED;

cudnnStatus_t Describe(const char* call, cudnnTensorStruct* to, cudnnDataType_t type,
                       cudnnTensorFormat_t format, int n, int c, int h, int w) {
  return DnnCall(call, [&] {
    if (n <= 0 || c <= 0 || h <= 0 || w <= 0 || format != CUDNN_TENSOR_NHWC) {
      return Refuse(CUDNN_STATUS_BAD_PARAM,
                    fmt::format("{}: {} x {} x {} x {} in format {} (expected channels-last)", call,
                                n, c, h, w, static_cast<int>(format)));
    }
    to->type = type;
    to->n = n;
    to->c = c;
    to->h = h;
    to->w = w;
    return CUDNN_STATUS_SUCCESS;
  });
}

}  // namespace

extern "C" {

size_t cudnnGetVersion() { return CUDNN_VERSION; }
const char* cudnnGetErrorString(cudnnStatus_t) { return "a status of cuDNN"; }

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  return Create("cudnnCreate", kDnnFailed, handle, cudnnContext(), CallKind::kNotInAStep);
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  return Destroy<cudnnContext>("cudnnDestroy", kDnnFailed, handle);
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  return DnnCall("cudnnSetStream", [&] {
    if (Device::Get().Find(stream, "cudnnSetStream") == nullptr) return CUDNN_STATUS_BAD_PARAM;
    handle->stream = stream;
    return CUDNN_STATUS_SUCCESS;
  });
}

cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t* tensor) {
  return Create("cudnnCreateTensorDescriptor", kDnnFailed, tensor, cudnnTensorStruct());
}
cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t tensor) {
  return Destroy<cudnnTensorStruct>("cudnnDestroyTensorDescriptor", kDnnFailed, tensor);
}
cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t tensor, cudnnTensorFormat_t format,
                                         cudnnDataType_t type, int n, int c, int h, int w) {
  return Describe("cudnnSetTensor4dDescriptor", tensor, type, format, n, c, h, w);
}

cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t* filter) {
  return Create("cudnnCreateFilterDescriptor", kDnnFailed, filter, cudnnFilterStruct());
}
cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t filter) {
  return Destroy<cudnnFilterStruct>("cudnnDestroyFilterDescriptor", kDnnFailed, filter);
}
cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t filter, cudnnDataType_t type,
                                         cudnnTensorFormat_t format, int k, int c, int h, int w) {
  return Describe("cudnnSetFilter4dDescriptor", filter, type, format, k, c, h, w);
}

cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t* convolution) {
  return Create("cudnnCreateConvolutionDescriptor", kDnnFailed, convolution,
                cudnnConvolutionStruct());
}
cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t convolution) {
  return Destroy<cudnnConvolutionStruct>("cudnnDestroyConvolutionDescriptor", kDnnFailed,
                                         convolution);
}
cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t convolution, int pad_h,
                                              int pad_w, int stride_h, int stride_w, int dilation_h,
                                              int dilation_w, cudnnConvolutionMode_t mode,
                                              cudnnDataType_t compute) {
  return DnnCall("cudnnSetConvolution2dDescriptor", [&] {
    if (pad_h < 0 || pad_w < 0 || stride_h <= 0 || stride_w <= 0 || dilation_h != 1 ||
        dilation_w != 1 || mode != CUDNN_CROSS_CORRELATION || compute != CUDNN_DATA_FLOAT) {
      return Refuse(CUDNN_STATUS_BAD_PARAM,
                    fmt::format("a convolution with pads {} {}, strides {} {}, dilations {} {} "
                                "(expected 1 1), mode {} and sums of type {}",
                                pad_h, pad_w, stride_h, stride_w, dilation_h, dilation_w,
                                static_cast<int>(mode), static_cast<int>(compute)));
    }
    convolution->pad_height = pad_h;
    convolution->pad_width = pad_w;
    convolution->stride_height = stride_h;
    convolution->stride_width = stride_w;
    return CUDNN_STATUS_SUCCESS;
  });
}
cudnnStatus_t cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t convolution, int groups) {
  return DnnCall("cudnnSetConvolutionGroupCount", [&] {
    if (groups <= 0) return Refuse(CUDNN_STATUS_BAD_PARAM, fmt::format("{} groups", groups));
    convolution->groups = groups;
    return CUDNN_STATUS_SUCCESS;
  });
}
cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t convolution,
                                          cudnnMathType_t math) {
  return DnnCall("cudnnSetConvolutionMathType", [&] {
    if (math == CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION) {
      return Refuse(CUDNN_STATUS_NOT_SUPPORTED, "floats that are silently rounded to halves");
    }
    convolution->math = math;
    return CUDNN_STATUS_SUCCESS;
  });
}
}
