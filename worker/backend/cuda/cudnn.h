// The part of cuDNN that Muster uses: its legacy convolutions.
#pragma once

#include <cudnn.h>

#include "worker/backend/cuda/check.h"

namespace muster::cuda {

// All cuDNN functions that Muster uses.
#define MUSTER_CUDNN_FUNCTIONS(X)                   \
  X(cudnnCreate)                                    \
  X(cudnnDestroy)                                   \
  X(cudnnGetVersion)                                \
  X(cudnnGetErrorString)                            \
  X(cudnnSetStream)                                 \
  X(cudnnCreateTensorDescriptor)                    \
  X(cudnnDestroyTensorDescriptor)                   \
  X(cudnnSetTensor4dDescriptor)                     \
  X(cudnnCreateFilterDescriptor)                    \
  X(cudnnDestroyFilterDescriptor)                   \
  X(cudnnSetFilter4dDescriptor)                     \
  X(cudnnCreateConvolutionDescriptor)               \
  X(cudnnDestroyConvolutionDescriptor)              \
  X(cudnnSetConvolution2dDescriptor)                \
  X(cudnnSetConvolutionGroupCount)                  \
  X(cudnnSetConvolutionMathType)                    \
  X(cudnnGetConvolutionForwardWorkspaceSize)        \
  X(cudnnGetConvolutionBackwardDataWorkspaceSize)   \
  X(cudnnGetConvolutionBackwardFilterWorkspaceSize) \
  X(cudnnConvolutionForward)                        \
  X(cudnnConvolutionBackwardData)                   \
  X(cudnnConvolutionBackwardFilter)

struct CudnnFunctions {
// NOLINTNEXTLINE(bugprone-macro-parentheses): a declared name cannot be parenthesized
#define MUSTER_DECLARE(name) decltype(&::name) name = nullptr;
  MUSTER_CUDNN_FUNCTIONS(MUSTER_DECLARE)
#undef MUSTER_DECLARE
};

class Cudnn {
 public:
  // Takes ownership of the handle; it may be null.
  Cudnn(const CudnnFunctions& functions, cudnnHandle_t handle);
  ~Cudnn();
  Cudnn(const Cudnn&) = delete;

  const CudnnFunctions* operator->() const { return &functions_; }
  cudnnHandle_t handle() const { return handle_; }
  // Throws cuDNN's error unless `result` is success. `what` completes "cannot …".
  void Check(cudnnStatus_t result, const char* what) const;

 private:
  const CudnnFunctions functions_;
  const cudnnHandle_t handle_;
};

}  // namespace muster::cuda
