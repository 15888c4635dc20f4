// cuBLAS and cublasLt on the software GPU: rounding, and errors. That products are right is tested
// by the backend's tests.
#include <cublasLt.h>
#include <cublas_v2.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "tests/cuda/gpu_fixture.h"

namespace muster::software_gpu {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr float kOne = 1;
constexpr float kZero = 0;
constexpr auto kSumsInFloat = CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION;

uint16_t ToBfloat16(float x) { return static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16); }

class CublasTest : public GpuTest {
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
  // c [size x size] = x x, with contiguous matrices.
  cublasStatus_t Square(const float* x, float* c, int size = 1,
                        cublasComputeType_t compute = CUBLAS_COMPUTE_32F) {
    return cublasGemmEx(blas_, CUBLAS_OP_N, CUBLAS_OP_N, size, size, size, &kOne, x, CUDA_R_32F,
                        size, x, CUDA_R_32F, size, &kZero, c, CUDA_R_32F, size, compute,
                        CUBLAS_GEMM_DEFAULT);
  }
  // Sums 513 ones in bfloat16.
  cublasStatus_t AddUp(uint16_t* to) {
    const uint16_t* const ones = Upload(std::vector<uint16_t>(513, ToBfloat16(1)));
    return cublasGemmEx(blas_, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 513, &kOne, ones, CUDA_R_16BF, 1,
                        ones, CUDA_R_16BF, 513, &kZero, to, CUDA_R_16BF, 1, CUBLAS_COMPUTE_32F,
                        CUBLAS_GEMM_DEFAULT);
  }

  cublasHandle_t blas_ = nullptr;
  cublasLtHandle_t lt_ = nullptr;
};

// 1 + 2^-11 has one more bit than TF32 stores.
TEST_F(CublasTest, Tf32OnlyWhereItIsAskedFor) {
  const float more = 1 + std::ldexp(1.0f, -11) + std::ldexp(1.0f, -12);
  const float tf32 = 1 + std::ldexp(1.0f, -10);
  const float* const x = Upload<float>({more});
  float* const c = Allocate<float>(1);
  EXPECT_EQ(Square(x, c), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(Download(c, 1)[0], more * more);
  EXPECT_EQ(Square(x, c, 1, CUBLAS_COMPUTE_32F_FAST_TF32), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(Download(c, 1)[0], tf32 * tf32);
  ViolationRecorder recorder;
  EXPECT_EQ(cublasSetMathMode(blas_, CUBLAS_TF32_TENSOR_OP_MATH), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_THAT(recorder.Take(), ElementsAre(HasSubstr("round more than they say")));
}

// By default, cuBLAS rounds partial sums when it splits a long sum.
TEST_F(CublasTest, Bfloat16IsAddedUpInFloatAndRoundedOnce) {
  uint16_t* const c = Allocate<uint16_t>(1);
  {
    ViolationRecorder recorder;
    EXPECT_EQ(AddUp(c), CUBLAS_STATUS_INVALID_VALUE);
    EXPECT_THAT(recorder.Take(), ElementsAre(HasSubstr("partial sums may be rounded")));
  }
  ASSERT_EQ(cublasSetMathMode(blas_, kSumsInFloat), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(AddUp(c), CUBLAS_STATUS_SUCCESS);
  // 513 lies between 512 and 516. A sum in bfloat16 would stop at 256.
  EXPECT_EQ(Download(c, 1)[0], ToBfloat16(512));
}

TEST_F(CublasTest, Bfloat16IsNotThereOnOldCards) {
  EXPECT_EQ(cublasDestroy(blas_), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cublasLtDestroy(lt_), CUBLAS_STATUS_SUCCESS);
  Start({.compute_major = 7, .compute_minor = 5});
  MakeHandles();
  ASSERT_EQ(cublasSetMathMode(blas_, kSumsInFloat), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(AddUp(Allocate<uint16_t>(1)), CUBLAS_STATUS_ARCH_MISMATCH);
}

TEST_F(CublasTest, FindsWrongMatrices) {
  float* const c = Allocate<float>(4);
  const float* const unwritten = Allocate<float>(1);
  const float* const short_by_one = Upload<float>({1, 2, 3});
  ViolationRecorder recorder;
  Square(unwritten, c);
  cudaStreamSynchronize(stream_);
  EXPECT_THAT(recorder.Take(), ElementsAre(HasSubstr("it was never written")));
  ForgetFailure();
  Square(short_by_one, c, 2);
  cudaStreamSynchronize(stream_);
  EXPECT_THAT(recorder.Take(), ElementsAre(HasSubstr("not all of one allocation")));
}

// cublasSetStream removes the workspace.
TEST_F(CublasTest, FindsWorkspacesThatCannotBeAndTheirLack) {
  char* const space = Allocate<char>(1000);
  const float* const x = Upload<float>({1});
  ViolationRecorder recorder;
  EXPECT_EQ(cublasSetWorkspace(blas_, space, 1001), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(cublasSetWorkspace(blas_, space + 64, 100), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_THAT(recorder.Take(), SizeIs(2));
  EXPECT_EQ(cublasSetWorkspace(blas_, space, 1000), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cublasSetStream(blas_, stream_), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(Square(x, Allocate<float>(1)), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_THAT(recorder.Take(), ElementsAre(HasSubstr("no workspace")));
}

TEST_F(CublasTest, FindsAWorkspaceOfTwoStreams) {
  char* const space = Allocate<char>(1000);
  const float* const x = Upload<float>({1});
  cudaStream_t other = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), cudaSuccess);
  ViolationRecorder recorder;
  for (cudaStream_t stream : {stream_, other}) {
    ASSERT_EQ(cublasSetStream(blas_, stream), CUBLAS_STATUS_SUCCESS);
    ASSERT_EQ(cublasSetWorkspace(blas_, space, 1000), CUBLAS_STATUS_SUCCESS);
    Square(x, Allocate<float>(1));
  }
  cudaStreamSynchronize(stream_);
  cudaStreamSynchronize(other);
  EXPECT_THAT(recorder.Take(), ElementsAre(HasSubstr("no event orders them")));
  cudaStreamDestroy(other);
}

// One cublasLt product: D [3 x 2] = relu(A B + bias).
class CublasLtTest : public CublasTest {
 protected:
  void SetUp() override {
    CublasTest::SetUp();
    cublasLtMatmulPreferenceCreate(&preference_);
    Prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{1} << 20);
    space_ = Allocate<char>(1 << 20);
    Describe(CUDA_R_32F);
  }
  void TearDown() override {
    Forget();
    cublasLtMatmulPreferenceDestroy(preference_);
    CublasTest::TearDown();
  }
  void Describe(cudaDataType type) {
    Forget();
    cublasLtMatmulDescCreate(&product_, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    Set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_RELU_BIAS);
    Set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, Upload<float>({100, 0, -100}));
    cublasLtMatrixLayoutCreate(&a_, type, 3, 1, 3);
    cublasLtMatrixLayoutCreate(&b_, type, 1, 2, 1);
    cublasLtMatrixLayoutCreate(&d_, type, 3, 2, 3);
  }
  void Forget() {
    if (product_ == nullptr) return;
    for (cublasLtMatrixLayout_t layout : {a_, b_, d_}) cublasLtMatrixLayoutDestroy(layout);
    cublasLtMatmulDescDestroy(product_);
  }
  template <typename T>
  void Set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    EXPECT_EQ(cublasLtMatmulDescSetAttribute(product_, attribute, &value, sizeof(value)),
              CUBLAS_STATUS_SUCCESS);
  }
  template <typename T>
  void Prefer(cublasLtMatmulPreferenceAttributes_t attribute, const T& value) {
    cublasLtMatmulPreferenceSetAttribute(preference_, attribute, &value, sizeof(value));
  }
  cublasStatus_t Find(cublasLtMatmulHeuristicResult_t* best) {
    int found = 0;
    return cublasLtMatmulAlgoGetHeuristic(lt_, product_, a_, b_, d_, d_, preference_, 1, best,
                                          &found);
  }
  // The same where one is found.
  cublasLtMatmulHeuristicResult_t Found() {
    cublasLtMatmulHeuristicResult_t best = {};
    EXPECT_EQ(Find(&best), CUBLAS_STATUS_SUCCESS);
    return best;
  }
  cublasStatus_t Multiply(float* d, const cublasLtMatmulAlgo_t& algorithm, size_t bytes) {
    return cublasLtMatmul(lt_, product_, &kOne, Upload<float>({1, 2, 3}), a_, Upload<float>({1, 2}),
                          b_, &kZero, d, d_, d, d_, &algorithm, space_, bytes, stream_);
  }

  cublasLtMatmulDesc_t product_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr, b_ = nullptr, d_ = nullptr;
  cublasLtMatmulPreference_t preference_ = nullptr;
  char* space_ = nullptr;
};

TEST_F(CublasLtTest, FindsAWrongWorkspaceOrAlgorithm) {
  const cublasLtMatmulHeuristicResult_t best = Found();
  float* const d = Allocate<float>(6);
  EXPECT_EQ(Multiply(d, best.algo, best.workspaceSize), CUBLAS_STATUS_SUCCESS);
  EXPECT_THAT(Download(d, 6), ElementsAre(101, 2, 0, 102, 4, 0));
  ViolationRecorder recorder;
  EXPECT_EQ(Multiply(d, best.algo, best.workspaceSize - 1), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_THAT(recorder.Take(), ElementsAre(HasSubstr("but the algorithm needs")));
  Set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
  EXPECT_EQ(Multiply(d, best.algo, best.workspaceSize), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_THAT(recorder.Take(), ElementsAre(HasSubstr("for another product")));
}

TEST_F(CublasLtTest, FindsWhatIsAlignedToLessThanTheHeuristicWasTold) {
  cublasLtMatmulHeuristicResult_t best = Found();
  float* const shifted = Allocate<float>(6 + 16) + 16;
  ViolationRecorder recorder;
  EXPECT_EQ(Multiply(shifted, best.algo, best.workspaceSize), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_THAT(recorder.Take(), ElementsAre(HasSubstr("C is not aligned to 256 bytes")));
  Prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, uint32_t{64});
  Prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, uint32_t{64});
  best = Found();
  EXPECT_EQ(Multiply(shifted, best.algo, best.workspaceSize), CUBLAS_STATUS_SUCCESS);
  const float* const bias = Upload<float>({0, 1, 2, 3});
  Set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias + 1);
  EXPECT_EQ(Multiply(shifted, best.algo, best.workspaceSize), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_THAT(recorder.Take(), ElementsAre(HasSubstr("the bias is not aligned to 16 bytes")));
}

TEST_F(CublasLtTest, FindsAlgorithmsThatMayRoundPartialSums) {
  Describe(CUDA_R_16BF);
  cublasLtMatmulHeuristicResult_t best = {};
  {
    ViolationRecorder recorder;
    EXPECT_EQ(Find(&best), CUBLAS_STATUS_INVALID_VALUE);
    EXPECT_THAT(recorder.Take(), ElementsAre(HasSubstr("rounded to the type of D")));
  }
  Prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
         uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  EXPECT_EQ(Find(&best), CUBLAS_STATUS_SUCCESS);
}

}  // namespace
}  // namespace muster::software_gpu
