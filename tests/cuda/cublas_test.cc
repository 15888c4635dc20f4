// cuBLAS, cublasLt and cuDNN on the software GPU: results against formulas in double, and errors.
#include <cublasLt.h>
#include <cublas_v2.h>
#include <cudnn.h>
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "tests/cuda/gpu_fixture.h"
#include "tests/cuda/software_gpu/random.h"

namespace muster::software_gpu {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr float kOne = 1;
constexpr float kZero = 0;

// Between -1 and 1, with eight bits: also exact in bfloat16.
std::vector<float> Numbers(size_t count, uint64_t seed) {
  std::vector<float> numbers(count);
  for (size_t i = 0; i < count; ++i) {
    numbers[i] = static_cast<float>(static_cast<int>(Mix(seed * 1000 + i) % 256) - 128) / 128;
  }
  return numbers;
}

std::vector<uint16_t> ToBfloat16(const std::vector<float>& from) {
  std::vector<uint16_t> to;
  for (const float x : from) to.push_back(static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16));
  return to;
}

class LibraryTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    MakeHandles();
  }
  void TearDown() override {
    ForgetFailure();
    EXPECT_EQ(cublasDestroy(blas_), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cublasLtDestroy(lt_), CUBLAS_STATUS_SUCCESS);
    GpuTest::TearDown();
  }
  void MakeHandles() {
    ASSERT_EQ(cublasCreate(&blas_), CUBLAS_STATUS_SUCCESS);
    ASSERT_EQ(cublasSetStream(blas_, stream_), CUBLAS_STATUS_SUCCESS);
    ASSERT_EQ(cublasSetWorkspace(blas_, Allocate<char>(1024), 1024), CUBLAS_STATUS_SUCCESS);
    ASSERT_EQ(cublasLtCreate(&lt_), CUBLAS_STATUS_SUCCESS);
  }

  cublasHandle_t blas_ = nullptr;
  cublasLtHandle_t lt_ = nullptr;
};

TEST_F(LibraryTest, MultipliesAllTranspositions) {
  constexpr int m = 5, n = 3, k = 7;
  const std::vector<float> a = Numbers(m * k, 1);
  const std::vector<float> b = Numbers(k * n, 2);
  const float* const on_a = Upload(a);
  const float* const on_b = Upload(b);
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      float* const c = Allocate<float>(m * n);
      EXPECT_EQ(
          cublasGemmEx(blas_, ta ? CUBLAS_OP_T : CUBLAS_OP_N, tb ? CUBLAS_OP_T : CUBLAS_OP_N, m, n,
                       k, &kOne, on_a, CUDA_R_32F, ta ? k : m, on_b, CUDA_R_32F, tb ? n : k, &kZero,
                       c, CUDA_R_32F, m, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
          CUBLAS_STATUS_SUCCESS);
      const std::vector<float> got = Download(c, m * n);
      for (int i = 0; i < m; ++i) {
        for (int j = 0; j < n; ++j) {
          double sum = 0;
          for (int p = 0; p < k; ++p) {
            sum += static_cast<double>(a[static_cast<size_t>(ta ? i * k + p : p * m + i)]) *
                   b[static_cast<size_t>(tb ? p * n + j : j * k + p)];
          }
          EXPECT_NEAR(got[static_cast<size_t>(j * m + i)], sum, 1e-5);
        }
      }
    }
  }
}

TEST_F(LibraryTest, MultipliesManyAndAdds) {
  const float* const a = Upload<float>({1, 2, 3, 4});
  const float* const b = Upload<float>({10, 100});
  float* const c = Upload<float>({1, 1, 1, 1});
  EXPECT_EQ(cublasGemmStridedBatchedEx(blas_, CUBLAS_OP_N, CUBLAS_OP_N, 2, 1, 1, &kOne, a,
                                       CUDA_R_32F, 2, 2, b, CUDA_R_32F, 1, 1, &kOne, c, CUDA_R_32F,
                                       2, 2, 2, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
            CUBLAS_STATUS_SUCCESS);
  EXPECT_THAT(Download(c, 4), ElementsAre(11, 21, 301, 401));
}

// 1 + 2^-11 has one more bit than TF32 stores.
TEST_F(LibraryTest, Tf32OnlyWhereItIsAskedFor) {
  const float* const x = Upload<float>({1 + std::ldexp(1.0f, -11) + std::ldexp(1.0f, -12)});
  const float* const one = Upload<float>({1});
  float* const c = Allocate<float>(1);
  const auto multiply = [&](cublasComputeType_t compute) {
    EXPECT_EQ(cublasGemmEx(blas_, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &kOne, x, CUDA_R_32F, 1, one,
                           CUDA_R_32F, 1, &kZero, c, CUDA_R_32F, 1, compute, CUBLAS_GEMM_DEFAULT),
              CUBLAS_STATUS_SUCCESS);
    return Download(c, 1)[0];
  };
  EXPECT_EQ(multiply(CUBLAS_COMPUTE_32F), 1 + std::ldexp(1.0f, -11) + std::ldexp(1.0f, -12));
  EXPECT_EQ(multiply(CUBLAS_COMPUTE_32F_FAST_TF32), 1 + std::ldexp(1.0f, -10));
  ASSERT_EQ(cublasSetMathMode(blas_, CUBLAS_TF32_TENSOR_OP_MATH), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(multiply(CUBLAS_COMPUTE_32F), 1 + std::ldexp(1.0f, -10));
}

class Bfloat16Test : public LibraryTest {
 protected:
  // Sums 513 ones.
  cublasStatus_t AddUp(uint16_t* to) {
    const uint16_t* const ones = Upload(ToBfloat16(std::vector<float>(513, 1)));
    return cublasGemmEx(blas_, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 513, &kOne, ones, CUDA_R_16BF, 1,
                        ones, CUDA_R_16BF, 513, &kZero, to, CUDA_R_16BF, 1, CUBLAS_COMPUTE_32F,
                        CUBLAS_GEMM_DEFAULT);
  }
  void AskForSumsInFloat() {
    ASSERT_EQ(cublasSetMathMode(blas_, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION),
              CUBLAS_STATUS_SUCCESS);
  }
};

TEST_F(Bfloat16Test, IsAddedUpInFloatAndRoundedOnce) {
  AskForSumsInFloat();
  uint16_t* const c = Allocate<uint16_t>(1);
  EXPECT_EQ(AddUp(c), CUBLAS_STATUS_SUCCESS);
  // 513 lies between 512 and 516. A sum in bfloat16 would stop at 256.
  EXPECT_EQ(Download(c, 1)[0], ToBfloat16({512})[0]);
}

// cuBLAS does this by default when it splits a long sum.
TEST_F(Bfloat16Test, FindsPartialSumsThatMayBeRounded) {
  ViolationRecorder recorder;
  EXPECT_EQ(AddUp(Allocate<uint16_t>(1)), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_THAT(recorder.Take(), ElementsAre(HasSubstr("partial sums may be rounded")));
}

TEST_F(Bfloat16Test, IsNotThereOnOldCards) {
  EXPECT_EQ(cublasDestroy(blas_), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cublasLtDestroy(lt_), CUBLAS_STATUS_SUCCESS);
  Start({.compute_major = 7, .compute_minor = 5});
  MakeHandles();
  AskForSumsInFloat();
  EXPECT_EQ(AddUp(Allocate<uint16_t>(1)), CUBLAS_STATUS_ARCH_MISMATCH);
}

TEST_F(LibraryTest, FindsInputsThatNobodyHasWritten) {
  const float* const x = Allocate<float>(1);
  float* const c = Allocate<float>(1);
  ViolationRecorder recorder;
  cublasGemmEx(blas_, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &kOne, x, CUDA_R_32F, 1, x, CUDA_R_32F, 1,
               &kZero, c, CUDA_R_32F, 1, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
  cudaStreamSynchronize(stream_);
  EXPECT_THAT(recorder.Take(), ElementsAre(HasSubstr("it was never written")));
}

TEST_F(LibraryTest, FindsMatricesThatReachBehindTheirMemory) {
  const float* const x = Upload<float>({1, 2, 3});
  float* const c = Allocate<float>(4);
  ViolationRecorder recorder;
  cublasGemmEx(blas_, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 2, &kOne, x, CUDA_R_32F, 2, x, CUDA_R_32F, 2,
               &kZero, c, CUDA_R_32F, 2, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
  cudaStreamSynchronize(stream_);
  EXPECT_THAT(recorder.Take(), ElementsAre(HasSubstr("not all of one allocation")));
}

TEST_F(LibraryTest, FindsWorkspacesThatCannotBe) {
  char* const space = Allocate<char>(1000);
  ViolationRecorder recorder;
  EXPECT_EQ(cublasSetWorkspace(blas_, space, 1001), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(cublasSetWorkspace(blas_, space + 64, 100), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(recorder.Take().size(), 2u);
  EXPECT_EQ(cublasSetWorkspace(blas_, space, 1000), CUBLAS_STATUS_SUCCESS);
}

// cublasSetStream removes the workspace.
TEST_F(LibraryTest, FindsAProductWithoutAWorkspace) {
  const float* const x = Upload<float>({1});
  ASSERT_EQ(cublasSetStream(blas_, stream_), CUBLAS_STATUS_SUCCESS);
  ViolationRecorder recorder;
  EXPECT_EQ(cublasGemmEx(blas_, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &kOne, x, CUDA_R_32F, 1, x,
                         CUDA_R_32F, 1, &kZero, Allocate<float>(1), CUDA_R_32F, 1,
                         CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
            CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_THAT(recorder.Take(), ElementsAre(HasSubstr("no workspace")));
}

TEST_F(LibraryTest, FindsAWorkspaceOfTwoStreams) {
  char* const space = Allocate<char>(1000);
  const float* const x = Upload<float>({1});
  cudaStream_t other = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), cudaSuccess);
  ViolationRecorder recorder;
  for (cudaStream_t stream : {stream_, other}) {
    ASSERT_EQ(cublasSetStream(blas_, stream), CUBLAS_STATUS_SUCCESS);
    ASSERT_EQ(cublasSetWorkspace(blas_, space, 1000), CUBLAS_STATUS_SUCCESS);
    cublasGemmEx(blas_, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &kOne, x, CUDA_R_32F, 1, x, CUDA_R_32F,
                 1, &kZero, Allocate<float>(1), CUDA_R_32F, 1, CUBLAS_COMPUTE_32F,
                 CUBLAS_GEMM_DEFAULT);
  }
  cudaStreamSynchronize(stream_);
  cudaStreamSynchronize(other);
  EXPECT_THAT(recorder.Take(), ElementsAre(HasSubstr("no event orders them")));
  cudaStreamDestroy(other);
}

// One cublasLt product: D [3 x 2] = relu(A B + bias).
class LtTest : public LibraryTest {
 protected:
  void SetUp() override {
    LibraryTest::SetUp();
    ASSERT_EQ(cublasLtMatmulDescCreate(&product_, CUBLAS_COMPUTE_32F, CUDA_R_32F),
              CUBLAS_STATUS_SUCCESS);
    const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_RELU_BIAS;
    Set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
    const float* const bias = Upload<float>({100, 0, -100});
    Set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    cublasLtMatrixLayoutCreate(&a_, CUDA_R_32F, 3, 1, 3);
    cublasLtMatrixLayoutCreate(&b_, CUDA_R_32F, 1, 2, 1);
    cublasLtMatrixLayoutCreate(&d_, CUDA_R_32F, 3, 2, 3);
    cublasLtMatmulPreferenceCreate(&preference_);
    const uint64_t most = 1 << 20;
    cublasLtMatmulPreferenceSetAttribute(preference_, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                         &most, sizeof(most));
    space_ = Allocate<char>(1 << 20);
  }
  void TearDown() override {
    cublasLtMatmulPreferenceDestroy(preference_);
    for (cublasLtMatrixLayout_t layout : {a_, b_, d_}) cublasLtMatrixLayoutDestroy(layout);
    cublasLtMatmulDescDestroy(product_);
    LibraryTest::TearDown();
  }
  template <typename T>
  void Set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    ASSERT_EQ(cublasLtMatmulDescSetAttribute(product_, attribute, &value, sizeof(value)),
              CUBLAS_STATUS_SUCCESS);
  }
  cublasLtMatmulHeuristicResult_t Find() {
    cublasLtMatmulHeuristicResult_t result = {};
    int found = 0;
    EXPECT_EQ(cublasLtMatmulAlgoGetHeuristic(lt_, product_, a_, b_, d_, d_, preference_, 1, &result,
                                             &found),
              CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(found, 1);
    return result;
  }
  cublasStatus_t Multiply(float* d, const cublasLtMatmulAlgo_t* algorithm, size_t bytes) {
    return cublasLtMatmul(lt_, product_, &kOne, Upload<float>({1, 2, 3}), a_, Upload<float>({1, 2}),
                          b_, &kZero, d, d_, d, d_, algorithm, space_, bytes, stream_);
  }

  cublasLtMatmulDesc_t product_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr;
  cublasLtMatrixLayout_t b_ = nullptr;
  cublasLtMatrixLayout_t d_ = nullptr;
  cublasLtMatmulPreference_t preference_ = nullptr;
  char* space_ = nullptr;
};

TEST_F(LtTest, AddsABiasAndCutsOff) {
  const cublasLtMatmulHeuristicResult_t best = Find();
  float* const d = Allocate<float>(6);
  EXPECT_EQ(Multiply(d, &best.algo, best.workspaceSize), CUBLAS_STATUS_SUCCESS);
  EXPECT_THAT(Download(d, 6), ElementsAre(101, 2, 0, 102, 4, 0));
}

TEST_F(LtTest, FindsAWorkspaceThatIsTooSmall) {
  const cublasLtMatmulHeuristicResult_t best = Find();
  ViolationRecorder recorder;
  EXPECT_EQ(Multiply(Allocate<float>(6), &best.algo, best.workspaceSize - 1),
            CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_THAT(recorder.Take(), ElementsAre(HasSubstr("but the algorithm needs")));
}

TEST_F(LtTest, FindsAnAlgorithmOfAnotherProduct) {
  const cublasLtMatmulHeuristicResult_t best = Find();
  const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
  Set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
  ViolationRecorder recorder;
  EXPECT_EQ(Multiply(Allocate<float>(6), &best.algo, best.workspaceSize),
            CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_THAT(recorder.Take(), ElementsAre(HasSubstr("for another product")));
}

TEST_F(LtTest, FindsWhatIsAlignedToLessThanTheHeuristicWasTold) {
  const cublasLtMatmulHeuristicResult_t best = Find();
  ViolationRecorder recorder;
  EXPECT_EQ(Multiply(Allocate<float>(6 + 16) + 16, &best.algo, best.workspaceSize),
            CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_THAT(recorder.Take(), ElementsAre(HasSubstr("C is not aligned to 256 bytes")));
  for (const auto attribute :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    const uint32_t less = 64;
    cublasLtMatmulPreferenceSetAttribute(preference_, attribute, &less, sizeof(less));
  }
  const cublasLtMatmulHeuristicResult_t other = Find();
  EXPECT_EQ(Multiply(Allocate<float>(6 + 16) + 16, &other.algo, other.workspaceSize),
            CUBLAS_STATUS_SUCCESS);
  const float* const bias = Upload<float>({0, 1, 2, 3});
  Set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias + 1);
  EXPECT_EQ(Multiply(Allocate<float>(6), &other.algo, other.workspaceSize),
            CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_THAT(recorder.Take(), ElementsAre(HasSubstr("the bias is not aligned to 16 bytes")));
}

TEST_F(LtTest, FindsAlgorithmsThatMayRoundPartialSums) {
  const auto set_type = [](cublasLtMatrixLayout_t layout) {
    const uint32_t type = CUDA_R_16BF;
    EXPECT_EQ(
        cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_TYPE, &type, sizeof(type)),
        CUBLAS_STATUS_SUCCESS);
  };
  for (cublasLtMatrixLayout_t layout : {a_, b_, d_}) set_type(layout);
  const auto find = [&](int* found) {
    cublasLtMatmulHeuristicResult_t result = {};
    return cublasLtMatmulAlgoGetHeuristic(lt_, product_, a_, b_, d_, d_, preference_, 1, &result,
                                          found);
  };
  int found = 0;
  {
    ViolationRecorder recorder;
    EXPECT_EQ(find(&found), CUBLAS_STATUS_INVALID_VALUE);
    EXPECT_THAT(recorder.Take(), ElementsAre(HasSubstr("rounded to the type of D")));
  }
  const uint32_t in_float = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  cublasLtMatmulPreferenceSetAttribute(preference_, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                       &in_float, sizeof(in_float));
  EXPECT_EQ(find(&found), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(found, 1);
}

TEST_F(LtTest, HasNoBiasOfAnotherType) {
  const int32_t type = CUDA_R_16BF;
  Set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type);
  cublasLtMatmulHeuristicResult_t result = {};
  int found = 1;
  EXPECT_EQ(cublasLtMatmulAlgoGetHeuristic(lt_, product_, a_, b_, d_, d_, preference_, 1, &result,
                                           &found),
            CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(found, 0);
}

}  // namespace
}  // namespace muster::software_gpu
