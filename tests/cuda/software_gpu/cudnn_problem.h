// A convolution that cuDNN is called for, and whether cuDNN supports it.
#pragma once

#include <library_types.h>

#include <cstddef>
#include <cstdint>

#include "tests/cuda/software_gpu/convolution.h"
#include "tests/cuda/software_gpu/cudnn_descriptors.h"

namespace muster::software_gpu {

// Copies of all parameters, because callers may destroy descriptors after a call.
struct ConvolutionProblem {
  cudnnTensorStruct x, y;
  cudnnFilterStruct w;
  cudnnConvolutionStruct convolution;
};

cudaDataType TypeOf(const cudnnTensorStruct& tensor);
size_t BytesOf(const cudnnTensorStruct& tensor);
size_t WorkspaceOf(const ConvolutionProblem& problem);
ConvolutionShape ShapeOf(const ConvolutionProblem& problem);

// Wrong shapes and nondeterministic algorithms are violations. Convolutions that cuDNN does not
// support are not.
cudnnStatus_t CheckProblem(const ConvolutionProblem& problem, cudnnConvolutionFwdAlgo_t algorithm);
cudnnStatus_t CheckProblem(const ConvolutionProblem& problem,
                           cudnnConvolutionBwdDataAlgo_t algorithm);
cudnnStatus_t CheckProblem(const ConvolutionProblem& problem,
                           cudnnConvolutionBwdFilterAlgo_t algorithm);

}  // namespace muster::software_gpu
