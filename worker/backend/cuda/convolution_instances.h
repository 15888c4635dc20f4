// MUSTER_INSTANTIATE_CONVOLUTIONS(Gemm) instantiates the makers of an implementation with typed
// weights for all types. Used at the end of the file that defines them.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "worker/backend/cuda/convolution.h"

#define MUSTER_INSTANTIATE_CONVOLUTIONS_OF(WAY, T)                                           \
  template std::unique_ptr<ConvolutionForward> Make##WAY##Forward(const ConvolutionRequest&, \
                                                                  const TypedWeights<T>&);   \
  template std::unique_ptr<ConvolutionBackward> Make##WAY##InputGradient(                    \
      const ConvolutionRequest&, const TypedWeights<T>&);                                    \
  template std::unique_ptr<ConvolutionBackward> Make##WAY##WeightsGradient<T>(               \
      const ConvolutionRequest&);

#define MUSTER_INSTANTIATE_CONVOLUTIONS(WAY)     \
  MUSTER_INSTANTIATE_CONVOLUTIONS_OF(WAY, float) \
  MUSTER_INSTANTIATE_CONVOLUTIONS_OF(WAY, Bf16)  \
  MUSTER_INSTANTIATE_CONVOLUTIONS_OF(WAY, Fp16)
