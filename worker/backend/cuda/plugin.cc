// The interface of libmuster_cuda.so; nothing else in it is visible.
#include "worker/backend/cuda/plugin.h"

#include <dlfcn.h>

#include "cuda_sources.h"  // made by sources_hash.cmake
#include "worker/backend/cuda/cuda_backend.h"
#include "worker/backend/cuda/gpu_adder.h"

extern "C" __attribute__((visibility("default"))) const char* muster_cuda_plugin_build() {
  return muster::kCudaSources;
}

extern "C" __attribute__((visibility("default"))) bool muster_cuda_open_cudnn() {
  return ::dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL) != nullptr;
}

extern "C" __attribute__((visibility("default"))) void muster_cuda_make_worker(
    const muster::CudaOptions& options, muster::CudaWorker& made) {
  made = muster::cuda::MakeCudaWorker(options);
}

extern "C" __attribute__((visibility("default"))) void muster_cuda_make_adder(
    const muster::CudaOptions& options, std::unique_ptr<muster::GpuAdder>& made) {
  made = muster::cuda::MakeGpuAdder(options);
}
