// Which convolution cuDNN is asked for, and whether it does that.
#pragma once

#include <library_types.h>

#include <cstddef>
#include <cstdint>

#include "tests/cuda/software_gpu/convolution.h"
#include "tests/cuda/software_gpu/cudnn_descriptors.h"

namespace muster::software_gpu {

// All that a convolution is about. Copies: descriptors are the caller's again after a call.
struct ConvolutionProblem {
  cudnnTensorStruct x, y;
  cudnnFilterStruct w;
  cudnnConvolutionStruct convolution;
};

cudaDataType TypeOf(const cudnnTensorStruct& tensor);
size_t BytesOf(const cudnnTensorStruct& tensor);
size_t WorkspaceOf(const ConvolutionProblem& problem);
ConvolutionShape ShapeOf(const ConvolutionProblem& problem);

// Wrong shapes, and algorithms that give other bits each time, are violations; what cuDNN has no
// kernel for is not.
cudnnStatus_t CheckProblem(const ConvolutionProblem& problem, cudnnConvolutionFwdAlgo_t algorithm);
cudnnStatus_t CheckProblem(const ConvolutionProblem& problem,
                           cudnnConvolutionBwdDataAlgo_t algorithm);
cudnnStatus_t CheckProblem(const ConvolutionProblem& problem,
                           cudnnConvolutionBwdFilterAlgo_t algorithm);

}  // namespace muster::software_gpu
