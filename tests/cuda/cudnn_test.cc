// cuDNN's convolutions on the software GPU: errors. That convolutions are right is tested by the
// backend's tests.
#include <cudnn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/cuda/gpu_fixture.h"

namespace muster::software_gpu {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr float kOne = 1;
constexpr float kZero = 0;
constexpr auto kForward = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;
constexpr auto kFloat = CUDNN_DATA_FLOAT;

// A convolution of 4 x 4 pixels with 3 x 3 taps.
class CudnnTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    ASSERT_EQ(cudnnCreate(&dnn_), CUDNN_STATUS_SUCCESS);
    ASSERT_EQ(cudnnSetStream(dnn_, stream_), CUDNN_STATUS_SUCCESS);
    cudnnCreateTensorDescriptor(&x_type_);
    cudnnCreateTensorDescriptor(&y_type_);
    cudnnCreateFilterDescriptor(&w_type_);
    cudnnCreateConvolutionDescriptor(&convolution_);
    cudnnSetTensor4dDescriptor(x_type_, CUDNN_TENSOR_NHWC, kFloat, 1, 1, 4, 4);
    cudnnSetTensor4dDescriptor(y_type_, CUDNN_TENSOR_NHWC, kFloat, 1, 1, 2, 2);
    cudnnSetFilter4dDescriptor(w_type_, kFloat, CUDNN_TENSOR_NHWC, 1, 1, 3, 3);
    EXPECT_EQ(cudnnSetConvolution2dDescriptor(convolution_, 0, 0, 1, 1, 1, 1,
                                              CUDNN_CROSS_CORRELATION, kFloat),
              CUDNN_STATUS_SUCCESS);
    x_ = Upload(std::vector<float>(16, 1));
    w_ = Upload(std::vector<float>(9, 1));
    y_ = Allocate<float>(5);
    space_ = Allocate<char>(1 << 20);
  }
  void TearDown() override {
    ForgetFailure();
    cudnnDestroyTensorDescriptor(x_type_);
    cudnnDestroyTensorDescriptor(y_type_);
    cudnnDestroyFilterDescriptor(w_type_);
    cudnnDestroyConvolutionDescriptor(convolution_);
    EXPECT_EQ(cudnnDestroy(dnn_), CUDNN_STATUS_SUCCESS);
    GpuTest::TearDown();
  }
  cudnnStatus_t WorkspaceSize(size_t* bytes) {
    return cudnnGetConvolutionForwardWorkspaceSize(dnn_, x_type_, w_type_, convolution_, y_type_,
                                                   kForward, bytes);
  }
  cudnnStatus_t Convolve(float* y, size_t bytes) {
    return cudnnConvolutionForward(dnn_, &kOne, x_type_, x_, w_type_, w_, convolution_, kForward,
                                   space_, bytes, &kZero, y_type_, y);
  }

  cudnnHandle_t dnn_ = nullptr;
  cudnnTensorDescriptor_t x_type_ = nullptr, y_type_ = nullptr;
  cudnnFilterDescriptor_t w_type_ = nullptr;
  cudnnConvolutionDescriptor_t convolution_ = nullptr;
  float *x_ = nullptr, *w_ = nullptr, *y_ = nullptr;
  char* space_ = nullptr;
};

TEST_F(CudnnTest, FindsWrongMemory) {
  size_t bytes = 0;
  EXPECT_EQ(WorkspaceSize(&bytes), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(Convolve(y_, bytes), CUDNN_STATUS_SUCCESS);
  EXPECT_THAT(Download(y_, 4), ElementsAre(9, 9, 9, 9));
  ViolationRecorder recorder;
  EXPECT_EQ(Convolve(y_, bytes - 1), CUDNN_STATUS_BAD_PARAM);
  EXPECT_THAT(recorder.Take(), ElementsAre(HasSubstr("the call needs")));
  EXPECT_EQ(Convolve(y_ + 1, bytes), CUDNN_STATUS_BAD_PARAM);
  EXPECT_THAT(recorder.Take(), ElementsAre(HasSubstr("a misaligned tensor")));
}

TEST_F(CudnnTest, FindsAlgorithmsThatGiveOtherBitsEachTime) {
  size_t bytes = 0;
  ViolationRecorder recorder;
  EXPECT_EQ(
      cudnnGetConvolutionBackwardFilterWorkspaceSize(dnn_, x_type_, y_type_, convolution_, w_type_,
                                                     CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0, &bytes),
      CUDNN_STATUS_NOT_SUPPORTED);
  EXPECT_THAT(recorder.Take(), ElementsAre(HasSubstr("nondeterministic algorithm")));
}

TEST_F(CudnnTest, FindsAnOutputOfAnotherShapeAndRefusesMixedTypes) {
  size_t bytes = 0;
  {
    ViolationRecorder recorder;
    cudnnSetTensor4dDescriptor(y_type_, CUDNN_TENSOR_NHWC, kFloat, 1, 1, 2, 3);
    EXPECT_EQ(WorkspaceSize(&bytes), CUDNN_STATUS_BAD_PARAM);
    EXPECT_THAT(recorder.Take(), ElementsAre(HasSubstr("an output of 1 x 1 x 2 x 3")));
  }
  cudnnSetTensor4dDescriptor(y_type_, CUDNN_TENSOR_NHWC, CUDNN_DATA_BFLOAT16, 1, 1, 2, 2);
  EXPECT_EQ(WorkspaceSize(&bytes), CUDNN_STATUS_NOT_SUPPORTED);
}

}  // namespace
}  // namespace muster::software_gpu
