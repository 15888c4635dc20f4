// Kernels on the software GPU: right ones give what a card would, wrong ones are found out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "software_gpu/launch.h"
#include "tests/cuda/gpu_fixture.h"

namespace muster::software_gpu {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class KernelTest : public GpuTest {
 protected:
  // Launches it and waits; what was found.
  template <typename... Params, typename... Args>
  std::vector<std::string> Violations(void (*kernel)(Params...), dim3 grid, dim3 block,
                                      Args... args) {
    ViolationRecorder recorder;
    EXPECT_EQ(LaunchKernel(kernel, grid, block, 0, stream_, args...), cudaSuccess);
    cudaStreamSynchronize(stream_);
    return recorder.Take();
  }
};

__global__ void SumKernel(const float* values, float* sums, int count) {
  __shared__ float parts[8];
  float sum = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    sum += values[i];
  }
  for (int distance = 16; distance > 0; distance /= 2) {
    sum += __shfl_down_sync(0xffffffff, sum, distance);
  }
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    float total = 0;
    for (const float part : parts) total += part;
    sums[blockIdx.x] = total;
  }
}

TEST_F(KernelTest, AddsUpInSharedMemoryAndWarps) {
  const float* const values = Upload(std::vector<float>(10000, 1));
  float* const sums = Allocate<float>(4);
  cuda::Launch(SumKernel, dim3(4), dim3(256), stream_, values, sums, 10000);
  EXPECT_THAT(Download(sums, 4), ElementsAre(2560, 2560, 2560, 2320));
}

__global__ void DivergedBarrierKernel() {
  if (threadIdx.x < 40) __syncthreads();
}

TEST_F(KernelTest, FindsABarrierThatNotAllReach) {
  EXPECT_THAT(Violations(DivergedBarrierKernel, dim3(1), dim3(64)),
              ElementsAre(HasSubstr("40 of 64 threads")));
}

}  // namespace
}  // namespace muster::software_gpu
