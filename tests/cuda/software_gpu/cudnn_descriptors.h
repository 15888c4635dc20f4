// The structs behind cuDNN's descriptors.
#pragma once

#include <cudnn.h>

#include <cstdint>
#include <string>

#include "tests/cuda/software_gpu/convolution.h"
#include "tests/cuda/software_gpu/library.h"

struct cudnnContext {
  cudaStream_t stream = nullptr;
};

struct cudnnTensorStruct {
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  cudnnTensorFormat_t format = CUDNN_TENSOR_NHWC;
  int64_t n = 0, c = 0, h = 0, w = 0;
  int64_t count() const { return n * c * h * w; }
};

// `n` filters of `c` channels.
struct cudnnFilterStruct : cudnnTensorStruct {};

struct cudnnConvolutionStruct {
  int64_t pad_height = 0, pad_width = 0;
  int64_t stride_height = 1, stride_width = 1;
  int64_t dilation_height = 1, dilation_width = 1;
  int64_t groups = 1;
  cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  cudnnMathType_t math = CUDNN_DEFAULT_MATH;
};

namespace muster::software_gpu {

cudnnStatus_t DnnCall(const char* call, CallKind kind, const std::function<cudnnStatus_t()>& body);
cudnnStatus_t RefuseDnn(cudnnStatus_t status, const std::string& what);

// The output size of the forward convolution, or 0 if the filter does not fit.
int64_t OutputSize(int64_t size, int64_t filter, int64_t pad, int64_t stride, int64_t dilation);

}  // namespace muster::software_gpu
