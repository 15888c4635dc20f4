// The structs behind cuDNN's descriptors, and the convolutions that they describe. Tensors are
// channels-last.
#pragma once

#include <cudnn.h>

#include <array>
#include <cstdint>
#include <vector>

#include "tests/cuda/software_gpu/library.h"

struct cudnnContext {
  cudaStream_t stream = nullptr;
};

struct cudnnTensorStruct {
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  int64_t n = 0, c = 0, h = 0, w = 0;
  int64_t count() const { return n * c * h * w; }
};

// `n` filters of `c` channels.
struct cudnnFilterStruct : cudnnTensorStruct {};

struct cudnnConvolutionStruct {
  int64_t pad_height = 0, pad_width = 0;
  int64_t stride_height = 1, stride_width = 1;
  int64_t groups = 1;
  cudnnMathType_t math = CUDNN_DEFAULT_MATH;
};

namespace muster::software_gpu {

// Copies of all parameters, because callers may destroy descriptors after a call.
struct ConvolutionProblem {
  cudnnTensorStruct x;
  cudnnFilterStruct w;
  cudnnTensorStruct y;
  cudnnConvolutionStruct convolution;
};

// The tensor that a pass computes from the other two: the gradient of x or w, or y.
enum class ConvolutionPass { kX, kW, kY };

// Adds the result to its tensor. `numbers`: those of x, w and y.
void Convolve(const ConvolutionProblem& problem, ConvolutionPass pass,
              std::array<std::vector<float>, 3>& numbers);

template <typename Body>
cudnnStatus_t DnnCall(const char* call, const Body& body) {
  return LibraryCall(call, CallKind::kAnywhere, CUDNN_STATUS_EXECUTION_FAILED, body);
}

}  // namespace muster::software_gpu
