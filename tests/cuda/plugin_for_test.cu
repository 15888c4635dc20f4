// See plugin_test.cc. The shared variables belong to a library that is loaded at run time.
#include <vector>

#include "software_gpu/launch.h"

namespace muster::software_gpu {
namespace {

__global__ void SumKernel(const int* numbers, int count, int* sum) {
  __shared__ int parts[64];
  const int thread = static_cast<int>(threadIdx.x);
  int part = 0;
  for (int i = thread; i < count; i += 64) part += numbers[i];
  parts[thread] = part;
  __syncthreads();
  if (thread > 0) return;
  int total = 0;
  for (const int one : parts) total += one;
  *sum = total;
}

}  // namespace
}  // namespace muster::software_gpu

extern "C" __attribute__((visibility("default"))) int SumOnDevice(const int* numbers, int count) {
  using muster::software_gpu::SumKernel;
  const size_t bytes = static_cast<size_t>(count) * sizeof(int);
  cudaStream_t stream = nullptr;
  void* there = nullptr;
  void* sum = nullptr;
  void* here = nullptr;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  cudaMalloc(&there, bytes);
  cudaMalloc(&sum, sizeof(int));
  cudaHostAlloc(&here, bytes, cudaHostAllocDefault);
  std::copy(numbers, numbers + count, static_cast<int*>(here));
  cudaMemcpyAsync(there, here, bytes, cudaMemcpyHostToDevice, stream);
  muster::cuda::Launch(SumKernel, dim3(1), dim3(64), stream, static_cast<const int*>(there), count,
                       static_cast<int*>(sum));
  cudaMemcpyAsync(here, sum, sizeof(int), cudaMemcpyDeviceToHost, stream);
  const cudaError_t error = cudaStreamSynchronize(stream);
  const int total = *static_cast<int*>(here);
  cudaFree(there);
  cudaFree(sum);
  cudaFreeHost(here);
  cudaStreamDestroy(stream);
  return error == cudaSuccess ? total : -1;
}
