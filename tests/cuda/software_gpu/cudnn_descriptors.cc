// cuDNN on the software GPU: handles and descriptors.
#include "tests/cuda/software_gpu/cudnn_descriptors.h"

#include <fmt/format.h>

#include "tests/cuda/software_gpu/violation.h"

using namespace muster::software_gpu;  // NOLINT(google-build-using-namespace): C functions follow

namespace muster::software_gpu {

cudnnStatus_t DnnCall(const char* call, CallKind kind, const std::function<cudnnStatus_t()>& body) {
  return LibraryCall<cudnnStatus_t>(call, kind, CUDNN_STATUS_EXECUTION_FAILED, body);
}

cudnnStatus_t RefuseDnn(cudnnStatus_t status, const std::string& what) {
  ReportViolation("cuDNN: " + what);
  return status;
}

int64_t OutputSize(int64_t size, int64_t filter, int64_t pad, int64_t stride, int64_t dilation) {
  const int64_t covered = (filter - 1) * dilation + 1;
  return size + 2 * pad < covered ? 0 : (size + 2 * pad - covered) / stride + 1;
}

}  // namespace muster::software_gpu

namespace {

template <typename T>
cudnnStatus_t Create(T** made, const char* call, CallKind kind) {
  return DnnCall(call, kind, [&] {
    *made = new T;
    Device::Get().Track(*made, std::string("what ") + call + " made");
    return CUDNN_STATUS_SUCCESS;
  });
}

template <typename T>
cudnnStatus_t Destroy(T* object, const char* call) {
  if (!Device::Get().Untrack(object)) {
    return RefuseDnn(CUDNN_STATUS_BAD_PARAM, std::string(call) + ": no such descriptor");
  }
  delete object;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t Describe(cudnnTensorStruct* to, cudnnDataType_t type, cudnnTensorFormat_t format,
                       int n, int c, int h, int w) {
  if (n <= 0 || c <= 0 || h <= 0 || w <= 0) {
    return RefuseDnn(CUDNN_STATUS_BAD_PARAM,
                     fmt::format("a tensor of {} x {} x {} x {}", n, c, h, w));
  }
  if (type != CUDNN_DATA_FLOAT && type != CUDNN_DATA_BFLOAT16 && type != CUDNN_DATA_HALF) {
    return CUDNN_STATUS_NOT_SUPPORTED;
  }
  if (format != CUDNN_TENSOR_NHWC && format != CUDNN_TENSOR_NCHW) return CUDNN_STATUS_NOT_SUPPORTED;
  to->type = type;
  to->format = format;
  to->n = n;
  to->c = c;
  to->h = h;
  to->w = w;
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace

extern "C" {

size_t cudnnGetVersion() { return CUDNN_VERSION; }
size_t cudnnGetCudartVersion() { return CUDART_VERSION; }

const char* cudnnGetErrorString(cudnnStatus_t status) {
  switch (CUDNN_STATUS_CATEGORY(status)) {
    case 0:
      return "CUDNN_STATUS_SUCCESS";
    case 1000:
      return "CUDNN_STATUS_NOT_INITIALIZED";
    case 2000:
      return "CUDNN_STATUS_BAD_PARAM";
    case 3000:
      return "CUDNN_STATUS_NOT_SUPPORTED";
    case 4000:
      return "CUDNN_STATUS_INTERNAL_ERROR";
    default:
      return "CUDNN_STATUS_EXECUTION_FAILED";
  }
}

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  return Create(handle, "cudnnCreate", CallKind::kNotInAStep);
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) { return Destroy(handle, "cudnnDestroy"); }

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  return DnnCall("cudnnSetStream", CallKind::kAnywhere, [&] {
    if (Device::Get().Find(stream, "cudnnSetStream") == nullptr) return CUDNN_STATUS_BAD_PARAM;
    handle->stream = stream;
    return CUDNN_STATUS_SUCCESS;
  });
}

cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t* tensor) {
  return Create(tensor, "cudnnCreateTensorDescriptor", CallKind::kAnywhere);
}
cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t tensor) {
  return Destroy(tensor, "cudnnDestroyTensorDescriptor");
}
cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t tensor, cudnnTensorFormat_t format,
                                         cudnnDataType_t type, int n, int c, int h, int w) {
  return DnnCall("cudnnSetTensor4dDescriptor", CallKind::kAnywhere,
                 [&] { return Describe(tensor, type, format, n, c, h, w); });
}

cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t* filter) {
  return Create(filter, "cudnnCreateFilterDescriptor", CallKind::kAnywhere);
}
cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t filter) {
  return Destroy(filter, "cudnnDestroyFilterDescriptor");
}
cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t filter, cudnnDataType_t type,
                                         cudnnTensorFormat_t format, int k, int c, int h, int w) {
  return DnnCall("cudnnSetFilter4dDescriptor", CallKind::kAnywhere,
                 [&] { return Describe(filter, type, format, k, c, h, w); });
}

cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t* convolution) {
  return Create(convolution, "cudnnCreateConvolutionDescriptor", CallKind::kAnywhere);
}
cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t convolution) {
  return Destroy(convolution, "cudnnDestroyConvolutionDescriptor");
}
cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t convolution, int pad_h,
                                              int pad_w, int stride_h, int stride_w, int dilation_h,
                                              int dilation_w, cudnnConvolutionMode_t mode,
                                              cudnnDataType_t compute) {
  return DnnCall("cudnnSetConvolution2dDescriptor", CallKind::kAnywhere, [&] {
    if (pad_h < 0 || pad_w < 0 || stride_h <= 0 || stride_w <= 0 || dilation_h <= 0 ||
        dilation_w <= 0) {
      return RefuseDnn(CUDNN_STATUS_BAD_PARAM,
                       fmt::format("pads {} {}, strides {} {}, dilations {} {}", pad_h, pad_w,
                                   stride_h, stride_w, dilation_h, dilation_w));
    }
    convolution->pad_height = pad_h;
    convolution->pad_width = pad_w;
    convolution->stride_height = stride_h;
    convolution->stride_width = stride_w;
    convolution->dilation_height = dilation_h;
    convolution->dilation_width = dilation_w;
    convolution->mode = mode;
    convolution->compute = compute;
    return CUDNN_STATUS_SUCCESS;
  });
}
cudnnStatus_t cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t convolution, int groups) {
  return DnnCall("cudnnSetConvolutionGroupCount", CallKind::kAnywhere, [&] {
    if (groups <= 0) return RefuseDnn(CUDNN_STATUS_BAD_PARAM, fmt::format("{} groups", groups));
    convolution->groups = groups;
    return CUDNN_STATUS_SUCCESS;
  });
}
cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t convolution,
                                          cudnnMathType_t math) {
  return DnnCall("cudnnSetConvolutionMathType", CallKind::kAnywhere, [&] {
    if (math == CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION) {
      return RefuseDnn(CUDNN_STATUS_NOT_SUPPORTED, "floats that are silently rounded to halves");
    }
    convolution->math = math;
    return CUDNN_STATUS_SUCCESS;
  });
}

cudnnStatus_t cudnnGetConvolution2dForwardOutputDim(const cudnnConvolutionDescriptor_t convolution,
                                                    const cudnnTensorDescriptor_t input,
                                                    const cudnnFilterDescriptor_t filter, int* n,
                                                    int* c, int* h, int* w) {
  return DnnCall("cudnnGetConvolution2dForwardOutputDim", CallKind::kAnywhere, [&] {
    if (input->c != filter->c * convolution->groups) return CUDNN_STATUS_BAD_PARAM;
    *n = static_cast<int>(input->n);
    *c = static_cast<int>(filter->n);
    *h = static_cast<int>(OutputSize(input->h, filter->h, convolution->pad_height,
                                     convolution->stride_height, convolution->dilation_height));
    *w = static_cast<int>(OutputSize(input->w, filter->w, convolution->pad_width,
                                     convolution->stride_width, convolution->dilation_width));
    return *h > 0 && *w > 0 ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
  });
}
}
