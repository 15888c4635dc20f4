// The runtime and cuBLAS on the software GPU: right programs work, wrong ones are found out.
#include <cublas_v2.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/cuda/gpu_fixture.h"

namespace muster::software_gpu {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using RuntimeTest = GpuTest;

TEST_F(RuntimeTest, CopiesThereAndBack) {
  const float* const there = Upload<float>({1, 2, 3});
  EXPECT_THAT(Download(there, 3), ElementsAre(1, 2, 3));
}

TEST_F(RuntimeTest, HostAccessDies) {
  const float* const there = Upload<float>({1, 2, 3});
  EXPECT_DEATH(std::memset(const_cast<float*>(there), 0, 4),
               "the host touches device memory: byte 0 of an allocation of 12 bytes");
}

TEST_F(RuntimeTest, Multiplies) {
  // By columns: A = [1 3; 2 4], B = [5 7; 6 8].
  const float* const a = Upload<float>({1, 2, 3, 4});
  const float* const b = Upload<float>({5, 6, 7, 8});
  float* const c = Allocate<float>(4);
  cublasHandle_t blas = nullptr;
  ASSERT_EQ(cublasCreate(&blas), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(cublasSetStream(blas, stream_), CUBLAS_STATUS_SUCCESS);
  const float one = 1;
  const float zero = 0;
  EXPECT_EQ(
      cublasGemmEx(blas, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 2, &one, a, CUDA_R_32F, 2, b, CUDA_R_32F,
                   2, &zero, c, CUDA_R_32F, 2, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
      CUBLAS_STATUS_SUCCESS);
  EXPECT_THAT(Download(c, 4), ElementsAre(23, 34, 31, 46));
  EXPECT_EQ(cublasDestroy(blas), CUBLAS_STATUS_SUCCESS);
}

}  // namespace
}  // namespace muster::software_gpu
