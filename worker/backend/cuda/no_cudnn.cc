// Replaces the cuDNN files if Muster is built without its headers.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "worker/backend/cuda/convolution.h"
#include "worker/backend/cuda/convolution_instances.h"
#include "worker/backend/cuda/cudnn_library.h"

namespace muster::cuda {

std::shared_ptr<const Cudnn> FindCudnn(cudaStream_t, bool) { return nullptr; }
std::string VersionOf(const Cudnn&) { return ""; }
std::string WhyNoCudnn() {
  return "this CUDA backend was built without cuDNN's headers; build it with "
         "MUSTER_CUDNN_INCLUDE_DIR (docs/GPUS.md)";
}

template <typename T>
std::unique_ptr<ConvolutionForward> MakeCudnnForward(const ConvolutionRequest&,
                                                     const TypedWeights<T>&) {
  return nullptr;
}
template <typename T>
std::unique_ptr<ConvolutionBackward> MakeCudnnInputGradient(const ConvolutionRequest&,
                                                            const TypedWeights<T>&) {
  return nullptr;
}
template <typename T>
std::unique_ptr<ConvolutionBackward> MakeCudnnWeightsGradient(const ConvolutionRequest&) {
  return nullptr;
}

MUSTER_INSTANTIATE_CONVOLUTIONS(Cudnn)

}  // namespace muster::cuda
