// The software GPU detects faulty kernels. That it computes what a GPU would is tested by the
// backend's tests.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "software_gpu/launch.h"
#include "tests/cuda/gpu_fixture.h"

namespace muster::software_gpu {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class WrongKernelTest : public GpuTest {
 protected:
  // Launches the kernel, waits, and returns the violations.
  template <typename... Params, typename... Args>
  std::vector<std::string> Violations(void (*kernel)(Params...), dim3 grid, dim3 block,
                                      Args... args) {
    ViolationRecorder recorder;
    EXPECT_EQ(LaunchKernel(kernel, grid, block, stream_, args...), cudaSuccess);
    cudaStreamSynchronize(stream_);
    ForgetFailure();
    return recorder.Take();
  }
};

__global__ void ScaleKernel(float* values, float factor, int count) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    values[i] *= factor;
  }
}

// Each block adds its part of the values in shared memory and warps.
__global__ void SumKernel(const float* values, float* sums, int count) {
  __shared__ float parts[2];
  float sum = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    sum += values[i];
  }
  for (int distance = 16; distance > 0; distance /= 2) {
    sum += __shfl_xor_sync(0xffffffff, sum, distance);
  }
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x == 0) sums[blockIdx.x] = parts[0] + parts[1];
}

TEST_F(WrongKernelTest, FindsNothingInACorrectOne) {
  const float* const values = Upload(std::vector<float>(200, 1));
  float* const sums = Allocate<float>(2);
  EXPECT_THAT(Violations(SumKernel, dim3(2), dim3(64), values, sums, 200), IsEmpty());
  EXPECT_THAT(Download(sums, 2), ElementsAre(128, 72));
}

__global__ void DivergedBarrierKernel() {
  if (threadIdx.x < 40) __syncthreads();
}

TEST_F(WrongKernelTest, FindsABarrierThatNotAllReach) {
  EXPECT_THAT(Violations(DivergedBarrierKernel, dim3(1), dim3(64)),
              ElementsAre(AllOf(HasSubstr("40 of 64 threads"), HasSubstr("__syncthreads"),
                                HasSubstr("DivergedBarrierKernel"))));
}

__global__ void TwoBarriersKernel() {
  if (threadIdx.x < 40) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}

TEST_F(WrongKernelTest, FindsBarriersThatAreNotOne) {
  EXPECT_THAT(Violations(TwoBarriersKernel, dim3(1), dim3(64)),
              ElementsAre(HasSubstr("some threads are at the __syncthreads of")));
}

__global__ void HalfAWarpKernel(int* out) {
  if (threadIdx.x < 16) out[threadIdx.x] = __shfl_xor_sync(0xffffffff, 1, 1);
}

TEST_F(WrongKernelTest, FindsAShuffleThatNotAllReach) {
  int* const out = Allocate<int>(32);
  EXPECT_THAT(Violations(HalfAWarpKernel, dim3(1), dim3(32), out),
              ElementsAre(AllOf(HasSubstr("16 of 32 threads"), HasSubstr("has returned"))));
}

__global__ void SmallMaskKernel() { (void)__shfl_xor_sync(0x0000ffff, 1, 1); }

TEST_F(WrongKernelTest, FindsAShuffleOfAPartOfAWarp) {
  EXPECT_THAT(Violations(SmallMaskKernel, dim3(1), dim3(32)),
              ElementsAre(HasSubstr("with the mask 0xffff")));
}

__global__ void TwoShufflesKernel(int* out) {
  if (threadIdx.x < 16) {
    out[threadIdx.x] = __shfl_xor_sync(0xffffffff, 1, 1);
  } else {
    out[threadIdx.x] = __shfl_xor_sync(0xffffffff, 1, 1);
  }
}

TEST_F(WrongKernelTest, FindsShufflesThatAreNotOne) {
  int* const out = Allocate<int>(32);
  EXPECT_THAT(Violations(TwoShufflesKernel, dim3(1), dim3(32), out),
              ElementsAre(HasSubstr("at different shuffles")));
}

__global__ void NoBarrierKernel(float* out) {
  __shared__ float values[64];
  values[threadIdx.x] = 1;
  out[threadIdx.x] = values[63 - threadIdx.x];
}

TEST_F(WrongKernelTest, FindsARaceInSharedMemory) {
  float* const out = Allocate<float>(64);
  EXPECT_THAT(Violations(NoBarrierKernel, dim3(1), dim3(64), out),
              ElementsAre(AnyOf(HasSubstr("without a barrier between"),
                                HasSubstr("this block has not written it"))));
}

__global__ void StaleSharedKernel(float* out) {
  __shared__ float value;
  if (threadIdx.x > 0) return;
  if (blockIdx.x == 0) value = 1;
  out[blockIdx.x] = value;
}

TEST_F(WrongKernelTest, FindsSharedMemoryThatTheBlockBeforeLeft) {
  float* const out = Allocate<float>(2);
  EXPECT_THAT(Violations(StaleSharedKernel, dim3(2), dim3(32), out),
              ElementsAre(HasSubstr("this block has not written it")));
}

__global__ void SharedIndexKernel(float* out, int index) {
  __shared__ float values[8];
  if (threadIdx.x > 0) return;
  for (int i = 0; i < 8; ++i) values[i] = 0;
  out[0] = values[index];
}

TEST_F(WrongKernelTest, FindsAnIndexOutsideOfAnArray) {
  float* const out = Allocate<float>(1);
  EXPECT_THAT(Violations(SharedIndexKernel, dim3(1), dim3(32), out, 8),
              ElementsAre(HasSubstr("index 8 is outside of the array")));
}

TEST_F(WrongKernelTest, FindsAnAccessBehindAnAllocation) {
  float* const values = Upload<float>({1, 2, 3});
  EXPECT_THAT(Violations(ScaleKernel, dim3(1), dim3(32), values, 2, 4),
              ElementsAre(AllOf(HasSubstr("0 bytes after an allocation of 12 bytes"),
                                HasSubstr("wrong_kernels_test.cu"))));
}

TEST_F(WrongKernelTest, FindsAnAccessOfFreedMemory) {
  void* values = nullptr;
  ASSERT_EQ(cudaMalloc(&values, 12), cudaSuccess);
  ASSERT_EQ(cudaFree(values), cudaSuccess);
  EXPECT_THAT(Violations(ScaleKernel, dim3(1), dim3(32), static_cast<float*>(values), 2, 3),
              ElementsAre(HasSubstr("of an allocation of 12 bytes that was freed")));
}

TEST_F(WrongKernelTest, FindsMemoryThatNobodyHasWritten) {
  float* const values = Allocate<float>(3);
  EXPECT_THAT(Violations(ScaleKernel, dim3(1), dim3(32), values, 2, 3),
              ElementsAre(HasSubstr("it was never written")));
}

TEST_F(WrongKernelTest, FindsAHostAddressInAKernel) {
  float* const values = AllocateHost<float>(3);
  EXPECT_THAT(Violations(ScaleKernel, dim3(1), dim3(32), values, 2, 3),
              ElementsAre(HasSubstr("of the host's memory")));
}

__global__ void ShiftKernel(float* values, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i + 1 < count) values[i] = values[i + 1];
}

TEST_F(WrongKernelTest, FindsARaceBetweenThreads) {
  float* const values = Upload(std::vector<float>(64, 1));
  EXPECT_THAT(Violations(ShiftKernel, dim3(1), dim3(64), values, 64),
              ElementsAre(HasSubstr("without a barrier between")));
}

__global__ void OneOfEachBlockKernel(float* value) {
  if (threadIdx.x == 0) *value += 1;
}

TEST_F(WrongKernelTest, FindsARaceBetweenBlocks) {
  float* const value = Upload<float>({1});
  EXPECT_THAT(Violations(OneOfEachBlockKernel, dim3(2), dim3(32), value),
              ElementsAre(HasSubstr("another block of the kernel")));
}

__global__ void WideKernel(float* to, const float* from) {
  if (threadIdx.x > 0) return;
  *reinterpret_cast<float4*>(to) = *reinterpret_cast<const float4*>(from);
}

TEST_F(WrongKernelTest, FindsAMisalignedVector) {
  float* const values = Upload(std::vector<float>(16, 1));
  EXPECT_THAT(Violations(WideKernel, dim3(1), dim3(32), values + 8, values), IsEmpty());
  EXPECT_THAT(Violations(WideKernel, dim3(1), dim3(32), values + 8, values + 1),
              Contains(HasSubstr("is not a multiple of 16")));
}

TEST_F(WrongKernelTest, RefusesLaunchesThatNoCardOrNotAllTake) {
  float* const values = Upload<float>({1});
  ViolationRecorder recorder;
  for (const auto& [grid, block] : std::vector<std::pair<dim3, dim3>>{{dim3(1), dim3(288)},
                                                                      {dim3(1), dim3(33)},
                                                                      {dim3(1), dim3(0)},
                                                                      {dim3(0), dim3(32)},
                                                                      {dim3(1, 65536), dim3(32)}}) {
    EXPECT_EQ(LaunchKernel(ScaleKernel, grid, block, stream_, values, 1, 1),
              cudaErrorInvalidConfiguration);
    EXPECT_THAT(recorder.Take(), ElementsAre(HasSubstr("a launch of")));
  }
}

TEST_F(WrongKernelTest, AKernelThatFailsBreaksTheDevice) {
  float* const values = Upload<float>({1});
  const auto launch = [&] {
    return LaunchKernel(ScaleKernel, dim3(1), dim3(32), stream_, values, 2, 1);
  };
  FailCall("kernel", 2, cudaErrorLaunchFailure);
  EXPECT_EQ(launch(), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  {
    const Hold hold;  // otherwise the launch itself may already fail
    EXPECT_EQ(launch(), cudaSuccess);
  }
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaErrorLaunchFailure);
  EXPECT_EQ(launch(), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchFailure);
}

}  // namespace
}  // namespace muster::software_gpu
