// Kernels on the software GPU compute what a GPU would.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "tests/cuda/kernel_fixture.h"

namespace muster::software_gpu {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

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

}  // namespace
}  // namespace muster::software_gpu
