// Kernels on the software GPU: right ones give what a card would, wrong ones are found out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
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

class KernelTest : public GpuTest {
 protected:
  // Launches it and waits; what was found.
  template <typename... Params, typename... Args>
  std::vector<std::string> Violations(void (*kernel)(Params...), dim3 grid, dim3 block,
                                      Args... args) {
    ViolationRecorder recorder;
    EXPECT_EQ(LaunchKernel(kernel, grid, block, 0, stream_, args...), cudaSuccess);
    cudaStreamSynchronize(stream_);
    ForgetFailure();
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

__global__ void ScaleKernel(float* values, float factor, int count) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    values[i] *= factor;
  }
}

TEST_F(KernelTest, SeveralKernelsOfAStreamComeInTurn) {
  float* const values = Upload<float>({1, 2, 3});
  for (int i = 0; i < 10; ++i) cuda::Launch(ScaleKernel, dim3(2), dim3(32), stream_, values, 2, 3);
  EXPECT_THAT(Download(values, 3), ElementsAre(1024, 2048, 3072));
}

__global__ void IndexKernel(int* of) {
  const int at = (blockIdx.y * gridDim.x + blockIdx.x) * (blockDim.x * blockDim.y) +
                 threadIdx.y * blockDim.x + threadIdx.x;
  of[at] = at;
}

TEST_F(KernelTest, RunsEachThreadOfEachBlockOnce) {
  int* const of = Allocate<int>(3 * 5 * 4 * 7);
  cuda::Launch(IndexKernel, dim3(3, 5), dim3(4, 7), stream_, of);
  std::vector<int> expected(3 * 5 * 4 * 7);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(Download(of, expected.size()), expected);
}

__global__ void WarpKernel(int* results) {
  const int lane = static_cast<int>(threadIdx.x);
  results[lane] = __shfl_up_sync(0xffffffff, lane, 1);
  results[32 + lane] = __shfl_xor_sync(0xffffffff, lane, 3, 8);
  results[64 + lane] = __shfl_sync(0xffffffff, lane, 5, 16);
  results[96 + lane] = static_cast<int>(__ballot_sync(0xffffffff, lane % 2));
  if (lane < 4) results[128 + lane] = __shfl_down_sync(0xf, lane, 2, 4);
}

TEST_F(KernelTest, Shuffles) {
  int* const results = Allocate<int>(132);
  cuda::Launch(WarpKernel, dim3(1), dim3(32), stream_, results);
  const std::vector<int> got = Download(results, 132);
  for (int lane = 0; lane < 32; ++lane) {
    const auto at = static_cast<size_t>(lane);
    EXPECT_EQ(got[at], lane == 0 ? 0 : lane - 1);
    EXPECT_EQ(got[32 + at], lane ^ 3);
    EXPECT_EQ(got[64 + at], lane / 16 * 16 + 5);
    EXPECT_EQ(got[96 + at], static_cast<int>(0xaaaaaaaa));
  }
  EXPECT_THAT(std::vector<int>(got.begin() + 128, got.end()), ElementsAre(2, 3, 2, 3));
}

__global__ void CountKernel(int* count, int* largest) {
  atomicAdd(count, 1);
  atomicMax(largest, static_cast<int>(threadIdx.x));
}

TEST_F(KernelTest, AtomicsOfIntegersAreNoRace) {
  int* const counts = Upload<int>({0, 0});
  cuda::Launch(CountKernel, dim3(3), dim3(64), stream_, counts, counts + 1);
  EXPECT_THAT(Download(counts, 2), ElementsAre(192, 63));
}

__global__ void ReverseKernel(float* values, int count) {
  float* const copy = cuda::DynamicShared<float>();
  const int i = static_cast<int>(threadIdx.x);
  if (i < count) copy[i] = values[i];
  __syncthreads();
  if (i < count) values[i] = copy[count - 1 - i];
}

TEST_F(KernelTest, DynamicSharedMemory) {
  float* const values = Upload<float>({1, 2, 3});
  cuda::LaunchWithShared(ReverseKernel, dim3(1), dim3(32), 12, stream_, values, 3);
  EXPECT_THAT(Download(values, 3), ElementsAre(3, 2, 1));
}

__global__ void NeighboursOfAWarpKernel(int* out) {
  __shared__ int values[32];
  const int lane = static_cast<int>(threadIdx.x);
  values[lane] = lane;
  __syncwarp();
  out[lane] = values[31 - lane];
}

TEST_F(KernelTest, SyncwarpOrdersAWarp) {
  int* const out = Allocate<int>(32);
  EXPECT_THAT(Violations(NeighboursOfAWarpKernel, dim3(2 - 1), dim3(32), out), IsEmpty());
}

__device__ constexpr float kTable[4] = {1, 10, 100, 1000};

__global__ void TableKernel(float* out) { out[threadIdx.x] = kTable[threadIdx.x]; }

TEST_F(KernelTest, ReadsConstants) {
  float* const out = Allocate<float>(4);
  cuda::Launch(TableKernel, dim3(1), dim3(4), stream_, out);
  EXPECT_THAT(Download(out, 4), ElementsAre(1, 10, 100, 1000));
}

// What is wrong.

__global__ void DivergedBarrierKernel() {
  if (threadIdx.x < 40) __syncthreads();
}

TEST_F(KernelTest, FindsABarrierThatNotAllReach) {
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

TEST_F(KernelTest, FindsBarriersThatAreNotOne) {
  EXPECT_THAT(Violations(TwoBarriersKernel, dim3(1), dim3(64)),
              ElementsAre(HasSubstr("some threads are at the __syncthreads of")));
}

__global__ void HalfAWarpKernel(int* out) {
  if (threadIdx.x < 16) out[threadIdx.x] = __shfl_xor_sync(0xffffffff, 1, 1);
}

TEST_F(KernelTest, FindsAShuffleThatNotAllReach) {
  int* const out = Allocate<int>(32);
  EXPECT_THAT(Violations(HalfAWarpKernel, dim3(1), dim3(32), out),
              ElementsAre(AllOf(HasSubstr("16 of 32 threads"), HasSubstr("has returned"))));
}

__global__ void ForeignMaskKernel() { (void)__shfl_xor_sync(0x0000ffff, 1, 1); }

TEST_F(KernelTest, FindsAThreadThatIsNotInItsMask) {
  EXPECT_THAT(Violations(ForeignMaskKernel, dim3(1), dim3(32)),
              ElementsAre(HasSubstr("is without this thread")));
}

__global__ void OutsideOfMaskKernel() {
  if (threadIdx.x < 16) (void)__shfl_down_sync(0xffff, 1, 8);
}

TEST_F(KernelTest, FindsAShuffleFromOutsideOfTheMask) {
  EXPECT_THAT(Violations(OutsideOfMaskKernel, dim3(1), dim3(32)),
              ElementsAre(HasSubstr("which the mask 0xffff is without")));
}

TEST_F(KernelTest, FindsAMaskOfMoreThreadsThanTheBlockHas) {
  int* const out = Allocate<int>(32);
  EXPECT_THAT(Violations(HalfAWarpKernel, dim3(1), dim3(16), out),
              ElementsAre(HasSubstr("the block, of 16, does not have")));
}

__global__ void NoBarrierKernel(float* out) {
  __shared__ float values[64];
  values[threadIdx.x] = 1;
  out[threadIdx.x] = values[63 - threadIdx.x];
}

TEST_F(KernelTest, FindsARaceInSharedMemory) {
  float* const out = Allocate<float>(64);
  EXPECT_THAT(Violations(NoBarrierKernel, dim3(1), dim3(64), out),
              ElementsAre(AnyOf(HasSubstr("without a barrier between"),
                                HasSubstr("nobody of this block has written it"))));
}

__global__ void StaleSharedKernel(float* out) {
  __shared__ float value;
  if (blockIdx.x == 0) value = 1;
  out[blockIdx.x] = value;
}

TEST_F(KernelTest, FindsSharedMemoryThatTheBlockBeforeLeft) {
  float* const out = Allocate<float>(2);
  EXPECT_THAT(Violations(StaleSharedKernel, dim3(2), dim3(1), out),
              ElementsAre(HasSubstr("nobody of this block has written it")));
}

__global__ void SharedIndexKernel(float* out, int index) {
  __shared__ float values[8];
  for (int i = 0; i < 8; ++i) values[i] = 0;
  out[0] = values[index];
}

TEST_F(KernelTest, FindsAnIndexOutsideOfAnArray) {
  float* const out = Allocate<float>(1);
  EXPECT_THAT(Violations(SharedIndexKernel, dim3(1), dim3(1), out, 8),
              ElementsAre(HasSubstr("index 8 is outside of the array")));
}

TEST_F(KernelTest, FindsDynamicSharedMemoryThatIsTooSmall) {
  float* const values = Upload<float>({1, 2, 3});
  ViolationRecorder recorder;
  cuda::LaunchWithShared(ReverseKernel, dim3(1), dim3(32), 8, stream_, values, 3);
  cudaStreamSynchronize(stream_);
  EXPECT_EQ(recorder.Take().size(), 1u);
}

TEST_F(KernelTest, FindsAnAccessBehindAnAllocation) {
  float* const values = Upload<float>({1, 2, 3});
  EXPECT_THAT(Violations(ScaleKernel, dim3(1), dim3(32), values, 2, 4),
              ElementsAre(AllOf(HasSubstr("0 bytes behind an allocation of 12 bytes"),
                                HasSubstr("kernels_test.cu"))));
}

TEST_F(KernelTest, FindsAnAccessOfFreedMemory) {
  void* values = nullptr;
  ASSERT_EQ(cudaMalloc(&values, 12), cudaSuccess);
  ASSERT_EQ(cudaFree(values), cudaSuccess);
  EXPECT_THAT(Violations(ScaleKernel, dim3(1), dim3(32), static_cast<float*>(values), 2, 3),
              ElementsAre(HasSubstr("of an allocation of 12 bytes that was freed")));
}

TEST_F(KernelTest, FindsMemoryThatNobodyHasWritten) {
  float* const values = Allocate<float>(3);
  EXPECT_THAT(Violations(ScaleKernel, dim3(1), dim3(32), values, 2, 3),
              ElementsAre(HasSubstr("nobody has written it")));
}

TEST_F(KernelTest, FindsAHostAddressInAKernel) {
  float* const values = AllocateHost<float>(3);
  EXPECT_THAT(Violations(ScaleKernel, dim3(1), dim3(32), values, 2, 3),
              ElementsAre(HasSubstr("of the host's memory")));
}

__global__ void ShiftKernel(float* values, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i + 1 < count) values[i] = values[i + 1];
}

TEST_F(KernelTest, FindsARaceBetweenThreads) {
  float* const values = Upload(std::vector<float>(64, 1));
  EXPECT_THAT(Violations(ShiftKernel, dim3(1), dim3(64), values, 64),
              ElementsAre(HasSubstr("without a barrier between")));
}

TEST_F(KernelTest, FindsARaceBetweenBlocks) {
  float* const values = Upload(std::vector<float>(64, 1));
  EXPECT_THAT(Violations(ShiftKernel, dim3(64), dim3(1), values, 64),
              ElementsAre(HasSubstr("another block of the kernel")));
}

__global__ void WideKernel(float* to, const float* from) {
  *reinterpret_cast<float4*>(to) = *reinterpret_cast<const float4*>(from);
}

TEST_F(KernelTest, FindsAMisalignedVector) {
  float* const values = Upload(std::vector<float>(16, 1));
  EXPECT_THAT(Violations(WideKernel, dim3(1), dim3(1), values + 8, values), IsEmpty());
  EXPECT_THAT(Violations(WideKernel, dim3(1), dim3(1), values + 8, values + 1),
              Contains(HasSubstr("is not a multiple of 16")));
}

__global__ void TrapKernel() { __trap(); }

TEST_F(KernelTest, Traps) {
  EXPECT_THAT(Violations(TrapKernel, dim3(1), dim3(1)), ElementsAre(HasSubstr("__trap")));
}

TEST_F(KernelTest, RefusesLaunchesThatNoCardTakes) {
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

TEST_F(KernelTest, AKernelThatFailsBreaksTheDevice) {
  float* const values = Upload<float>({1});
  FailCall("kernel", 2, cudaErrorLaunchFailure);
  cuda::Launch(ScaleKernel, dim3(1), dim3(1), stream_, values, 2, 1);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  cuda::Launch(ScaleKernel, dim3(1), dim3(1), stream_, values, 2, 1);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaErrorLaunchFailure);
  EXPECT_THROW(cuda::Launch(ScaleKernel, dim3(1), dim3(1), stream_, values, 2, 1), Error);
  EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchFailure);
}

}  // namespace
}  // namespace muster::software_gpu
