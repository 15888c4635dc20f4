// The software GPU detects faulty kernels.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/cuda/kernel_fixture.h"

namespace muster::software_gpu {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using WrongKernelTest = KernelTest;

__global__ void ScaleKernel(float* values, float factor, int count) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    values[i] *= factor;
  }
}

__global__ void ReverseKernel(float* values, int count) {
  float* const copy = cuda::DynamicShared<float>();
  const int i = static_cast<int>(threadIdx.x);
  if (i < count) copy[i] = values[i];
  __syncthreads();
  if (i < count) values[i] = copy[count - 1 - i];
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

__global__ void ForeignMaskKernel() { (void)__shfl_xor_sync(0x0000ffff, 1, 1); }

TEST_F(WrongKernelTest, FindsAThreadThatIsNotInItsMask) {
  EXPECT_THAT(Violations(ForeignMaskKernel, dim3(1), dim3(32)),
              ElementsAre(HasSubstr("does not include this thread")));
}

__global__ void OutsideOfMaskKernel() {
  if (threadIdx.x < 16) (void)__shfl_down_sync(0xffff, 1, 8);
}

TEST_F(WrongKernelTest, FindsAShuffleFromOutsideOfTheMask) {
  EXPECT_THAT(Violations(OutsideOfMaskKernel, dim3(1), dim3(32)),
              ElementsAre(HasSubstr("not in the mask 0xffff")));
}

TEST_F(WrongKernelTest, FindsAMaskOfMoreThreadsThanTheBlockHas) {
  int* const out = Allocate<int>(32);
  EXPECT_THAT(Violations(HalfAWarpKernel, dim3(1), dim3(16), out),
              ElementsAre(HasSubstr("beyond the 16 of the block")));
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
  if (blockIdx.x == 0) value = 1;
  out[blockIdx.x] = value;
}

TEST_F(WrongKernelTest, FindsSharedMemoryThatTheBlockBeforeLeft) {
  float* const out = Allocate<float>(2);
  EXPECT_THAT(Violations(StaleSharedKernel, dim3(2), dim3(1), out),
              ElementsAre(HasSubstr("this block has not written it")));
}

__global__ void SharedIndexKernel(float* out, int index) {
  __shared__ float values[8];
  for (int i = 0; i < 8; ++i) values[i] = 0;
  out[0] = values[index];
}

TEST_F(WrongKernelTest, FindsAnIndexOutsideOfAnArray) {
  float* const out = Allocate<float>(1);
  EXPECT_THAT(Violations(SharedIndexKernel, dim3(1), dim3(1), out, 8),
              ElementsAre(HasSubstr("index 8 is outside of the array")));
}

TEST_F(WrongKernelTest, FindsDynamicSharedMemoryThatIsTooSmall) {
  float* const values = Upload<float>({1, 2, 3});
  ViolationRecorder recorder;
  cuda::LaunchWithShared(ReverseKernel, dim3(1), dim3(32), 8, stream_, values, 3);
  cudaStreamSynchronize(stream_);
  EXPECT_EQ(recorder.Take().size(), 1u);
}

TEST_F(WrongKernelTest, FindsAnAccessBehindAnAllocation) {
  float* const values = Upload<float>({1, 2, 3});
  EXPECT_THAT(Violations(ScaleKernel, dim3(1), dim3(32), values, 2, 4),
              ElementsAre(AllOf(HasSubstr("0 bytes after an allocation of 12 bytes"),
                                HasSubstr("kernels_test.cu"))));
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

TEST_F(WrongKernelTest, FindsARaceBetweenBlocks) {
  float* const values = Upload(std::vector<float>(64, 1));
  EXPECT_THAT(Violations(ShiftKernel, dim3(64), dim3(1), values, 64),
              ElementsAre(HasSubstr("another block of the kernel")));
}

__global__ void WideKernel(float* to, const float* from) {
  *reinterpret_cast<float4*>(to) = *reinterpret_cast<const float4*>(from);
}

TEST_F(WrongKernelTest, FindsAMisalignedVector) {
  float* const values = Upload(std::vector<float>(16, 1));
  EXPECT_THAT(Violations(WideKernel, dim3(1), dim3(1), values + 8, values), IsEmpty());
  EXPECT_THAT(Violations(WideKernel, dim3(1), dim3(1), values + 8, values + 1),
              Contains(HasSubstr("is not a multiple of 16")));
}

__global__ void TrapKernel() { __trap(); }

TEST_F(WrongKernelTest, Traps) {
  EXPECT_THAT(Violations(TrapKernel, dim3(1), dim3(1)), ElementsAre(HasSubstr("__trap")));
}

TEST_F(WrongKernelTest, RefusesLaunchesThatNoCardTakes) {
  float* const values = Upload<float>({1});
  const auto launch = [&](dim3 grid, dim3 block, size_t shared_bytes) {
    return LaunchKernel(ScaleKernel, grid, block, shared_bytes, stream_, values, 1, 1);
  };
  ViolationRecorder recorder;
  EXPECT_EQ(launch(dim3(1), dim3(1025), 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(dim3(1), dim3(0), 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(dim3(0), dim3(1), 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(dim3(1, 65536), dim3(1), 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(dim3(1), dim3(1), (48 << 10) + 1), cudaErrorInvalidConfiguration);
  EXPECT_EQ(recorder.Take().size(), 5u);
  EXPECT_EQ(cudaFuncSetAttribute(reinterpret_cast<const void*>(ScaleKernel),
                                 cudaFuncAttributeMaxDynamicSharedMemorySize, 64 << 10),
            cudaSuccess);
  EXPECT_EQ(launch(dim3(1), dim3(1), (48 << 10) + 1), cudaSuccess);
}

__global__ void ModestKernel() {}
__global__ void GreedyKernel() {}

// Declares nvcc's numbers, because g++ compiles a test's kernels.
TEST_F(WrongKernelTest, RefusesBlocksThatNeedMoreThanACardHas) {
  const auto launch = [&](int threads, size_t shared_bytes) {
    ViolationRecorder recorder;
    const cudaError_t error =
        LaunchKernel(GreedyKernel, dim3(1), dim3(threads), shared_bytes, stream_);
    cudaStreamSynchronize(stream_);
    const std::vector<std::string> found = recorder.Take();
    EXPECT_EQ(error == cudaSuccess, found.empty());
    return found.empty() ? "" : found.front();
  };
  const auto declare = [](const KernelResources& resources) {
    DeclareResources(reinterpret_cast<const void*>(GreedyKernel), resources);
  };
  declare({.registers = 64});
  EXPECT_EQ(launch(1024, 0), "");
  declare({.registers = 65});
  EXPECT_THAT(launch(1024, 0),
              AllOf(HasSubstr("GreedyKernel"), HasSubstr("1024 threads that need 65 registers"),
                    HasSubstr("73728 of the 65536 that a GPU has")));
  EXPECT_EQ(launch(896, 0), "");
  declare({.registers = 255});
  EXPECT_EQ(launch(256, 0), "");
  EXPECT_THAT(launch(257, 0), HasSubstr("257 threads that need 255 registers"));
  declare({.registers = 16, .shared_bytes = 40 << 10});
  EXPECT_EQ(launch(256, 8 << 10), "");
  EXPECT_THAT(launch(256, (8 << 10) + 4),
              HasSubstr("49156 bytes of shared memory, 40960 of them its own"));
  declare({.registers = 16, .most_threads = 128});
  EXPECT_EQ(launch(128, 0), "");
  EXPECT_THAT(launch(129, 0), HasSubstr("__launch_bounds__ say at most 128"));
  // A kernel without declared resources must be in the backend's library, or is reported.
  EXPECT_EQ(LaunchKernel(ModestKernel, dim3(1), dim3(1), 0, stream_), cudaSuccess);
  if (*MUSTER_REAL_PLUGIN != '\0') {
    EXPECT_THAT(KernelsWithoutResources(), Contains(HasSubstr("ModestKernel")));
  }
}

TEST_F(WrongKernelTest, AKernelThatFailsBreaksTheDevice) {
  float* const values = Upload<float>({1});
  FailCall("kernel", 2, cudaErrorLaunchFailure);
  cuda::Launch(ScaleKernel, dim3(1), dim3(1), stream_, values, 2, 1);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  {
    const Hold hold;  // otherwise the launch itself may already fail
    cuda::Launch(ScaleKernel, dim3(1), dim3(1), stream_, values, 2, 1);
  }
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaErrorLaunchFailure);
  EXPECT_THROW(cuda::Launch(ScaleKernel, dim3(1), dim3(1), stream_, values, 2, 1), Error);
  EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchFailure);
}

}  // namespace
}  // namespace muster::software_gpu
