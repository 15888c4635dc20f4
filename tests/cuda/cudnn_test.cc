// cuDNN's convolutions on the software GPU, against the formula in double.
#include <cudnn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <functional>
#include <string>
#include <vector>

#include "tests/cuda/gpu_fixture.h"
#include "tests/cuda/software_gpu/random.h"

namespace muster::software_gpu {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr float kOne = 1;
constexpr float kZero = 0;
constexpr auto kForward = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;
constexpr auto kData = CUDNN_CONVOLUTION_BWD_DATA_ALGO_1;
constexpr auto kFilter = CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1;

struct ConvolutionCase {
  int n = 2, c = 4, h = 6, w = 5, k = 6, r = 3, s = 2;
  int pad_h = 1, pad_w = 0, stride_h = 2, stride_w = 1, groups = 1;
  cudnnTensorFormat_t format = CUDNN_TENSOR_NHWC;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;

  int out_h() const { return (h + 2 * pad_h - r) / stride_h + 1; }
  int out_w() const { return (w + 2 * pad_w - s) / stride_w + 1; }
};

size_t At(const ConvolutionCase& one, int channels, int height, int width, int n, int c, int h,
          int w) {
  return static_cast<size_t>(one.format == CUDNN_TENSOR_NHWC
                                 ? ((n * height + h) * width + w) * channels + c
                                 : ((n * channels + c) * height + h) * width + w);
}

// Calls visit(input, weight, output) with the indices of all triples that contribute.
void ForAll(const ConvolutionCase& one, const std::function<void(size_t, size_t, size_t)>& visit) {
  const int per_group = one.c / one.groups;
  for (int n = 0; n < one.n; ++n) {
    for (int k = 0; k < one.k; ++k) {
      for (int y = 0; y < one.out_h(); ++y) {
        for (int x = 0; x < one.out_w(); ++x) {
          for (int c = 0; c < per_group; ++c) {
            for (int r = 0; r < one.r; ++r) {
              for (int s = 0; s < one.s; ++s) {
                const int h = y * one.stride_h - one.pad_h + r;
                const int w = x * one.stride_w - one.pad_w + s;
                if (h < 0 || h >= one.h || w < 0 || w >= one.w) continue;
                const int channel = k / (one.k / one.groups) * per_group + c;
                visit(At(one, one.c, one.h, one.w, n, channel, h, w),
                      At(one, per_group, one.r, one.s, k, c, r, s),
                      At(one, one.k, one.out_h(), one.out_w(), n, k, y, x));
              }
            }
          }
        }
      }
    }
  }
}

class CudnnTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    ASSERT_EQ(cudnnCreate(&dnn_), CUDNN_STATUS_SUCCESS);
    ASSERT_EQ(cudnnSetStream(dnn_, stream_), CUDNN_STATUS_SUCCESS);
    cudnnCreateTensorDescriptor(&x_);
    cudnnCreateTensorDescriptor(&y_);
    cudnnCreateFilterDescriptor(&w_);
    cudnnCreateConvolutionDescriptor(&convolution_);
    space_ = Allocate<char>(1 << 20);
  }
  void TearDown() override {
    ForgetFailure();
    cudnnDestroyTensorDescriptor(x_);
    cudnnDestroyTensorDescriptor(y_);
    cudnnDestroyFilterDescriptor(w_);
    cudnnDestroyConvolutionDescriptor(convolution_);
    EXPECT_EQ(cudnnDestroy(dnn_), CUDNN_STATUS_SUCCESS);
    GpuTest::TearDown();
  }
  void Describe(const ConvolutionCase& one) {
    cudnnSetTensor4dDescriptor(x_, one.format, one.type, one.n, one.c, one.h, one.w);
    cudnnSetTensor4dDescriptor(y_, one.format, one.type, one.n, one.k, one.out_h(), one.out_w());
    cudnnSetFilter4dDescriptor(w_, one.type, one.format, one.k, one.c / one.groups, one.r, one.s);
    cudnnSetConvolution2dDescriptor(convolution_, one.pad_h, one.pad_w, one.stride_h, one.stride_w,
                                    1, 1, CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT);
    cudnnSetConvolutionGroupCount(convolution_, one.groups);
    cudnnSetConvolutionMathType(convolution_, CUDNN_FMA_MATH);
    numbers_ = {Numbers(one.n * one.c * one.h * one.w, 1),
                Numbers(one.k * one.c / one.groups * one.r * one.s, 2),
                Numbers(one.n * one.k * one.out_h() * one.out_w(), 3)};
    type_ = one.type;
  }
  static std::vector<float> Numbers(int count, uint64_t seed) {
    std::vector<float> numbers;
    for (int i = 0; i < count; ++i) {
      const uint64_t bits = Mix(seed * 100000 + static_cast<uint64_t>(i));
      numbers.push_back(static_cast<float>(static_cast<int>(bits % 256) - 128) / 128);
    }
    return numbers;
  }
  const void* UploadNumbers(size_t which) {
    if (type_ == CUDNN_DATA_FLOAT) return Upload(numbers_[which]);
    std::vector<uint16_t> halves;
    for (const float x : numbers_[which]) {
      halves.push_back(static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16));
    }
    return Upload(halves);
  }
  void* AllocateNumbers(size_t which) {
    return Allocate<char>(numbers_[which].size() * (type_ == CUDNN_DATA_FLOAT ? 4 : 2));
  }
  std::vector<float> DownloadNumbers(const void* from, size_t count) {
    if (type_ == CUDNN_DATA_FLOAT) return Download(static_cast<const float*>(from), count);
    std::vector<float> numbers;
    for (const uint16_t half : Download(static_cast<const uint16_t*>(from), count)) {
      numbers.push_back(std::bit_cast<float>(uint32_t{half} << 16));
    }
    return numbers;
  }
  void ExpectNear(const std::vector<float>& got, const std::vector<double>& expected) {
    const double tolerance = type_ == CUDNN_DATA_FLOAT ? 1e-5 : 1.0 / 256;
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_NEAR(got[i], expected[i], tolerance * (1 + std::abs(expected[i]))) << i;
    }
  }
  void CheckForward(const ConvolutionCase& one);
  void CheckBackward(const ConvolutionCase& one);

  cudnnHandle_t dnn_ = nullptr;
  cudnnTensorDescriptor_t x_ = nullptr;
  cudnnTensorDescriptor_t y_ = nullptr;
  cudnnFilterDescriptor_t w_ = nullptr;
  cudnnConvolutionDescriptor_t convolution_ = nullptr;
  char* space_ = nullptr;
  std::vector<std::vector<float>> numbers_;  // x, w, y
  cudnnDataType_t type_ = CUDNN_DATA_FLOAT;
};

void CudnnTest::CheckForward(const ConvolutionCase& one) {
  Describe(one);
  size_t bytes = 0;
  ASSERT_EQ(
      cudnnGetConvolutionForwardWorkspaceSize(dnn_, x_, w_, convolution_, y_, kForward, &bytes),
      CUDNN_STATUS_SUCCESS);
  void* const y = AllocateNumbers(2);
  ASSERT_EQ(cudnnConvolutionForward(dnn_, &kOne, x_, UploadNumbers(0), w_, UploadNumbers(1),
                                    convolution_, kForward, space_, bytes, &kZero, y_, y),
            CUDNN_STATUS_SUCCESS);
  std::vector<double> expected(numbers_[2].size());
  ForAll(one, [&](size_t in, size_t weight, size_t out) {
    expected[out] += static_cast<double>(numbers_[0][in]) * numbers_[1][weight];
  });
  ExpectNear(DownloadNumbers(y, expected.size()), expected);
}

void CudnnTest::CheckBackward(const ConvolutionCase& one) {
  Describe(one);
  size_t data_bytes = 0;
  size_t filter_bytes = 0;
  ASSERT_EQ(cudnnGetConvolutionBackwardDataWorkspaceSize(dnn_, w_, y_, convolution_, x_, kData,
                                                         &data_bytes),
            CUDNN_STATUS_SUCCESS);
  ASSERT_EQ(cudnnGetConvolutionBackwardFilterWorkspaceSize(dnn_, x_, y_, convolution_, w_, kFilter,
                                                           &filter_bytes),
            CUDNN_STATUS_SUCCESS);
  void* const dx = AllocateNumbers(0);
  void* const dw = AllocateNumbers(1);
  const void* const dy = UploadNumbers(2);
  ASSERT_EQ(cudnnConvolutionBackwardData(dnn_, &kOne, w_, UploadNumbers(1), y_, dy, convolution_,
                                         kData, space_, data_bytes, &kZero, x_, dx),
            CUDNN_STATUS_SUCCESS);
  ASSERT_EQ(cudnnConvolutionBackwardFilter(dnn_, &kOne, x_, UploadNumbers(0), y_, dy, convolution_,
                                           kFilter, space_, filter_bytes, &kZero, w_, dw),
            CUDNN_STATUS_SUCCESS);
  std::vector<double> data(numbers_[0].size());
  std::vector<double> filter(numbers_[1].size());
  ForAll(one, [&](size_t in, size_t weight, size_t out) {
    data[in] += static_cast<double>(numbers_[1][weight]) * numbers_[2][out];
    filter[weight] += static_cast<double>(numbers_[0][in]) * numbers_[2][out];
  });
  ExpectNear(DownloadNumbers(dx, data.size()), data);
  ExpectNear(DownloadNumbers(dw, filter.size()), filter);
}

TEST_F(CudnnTest, ConvolvesForwardAndBackward) {
  for (const int groups : {1, 2}) {
    for (const auto format : {CUDNN_TENSOR_NHWC, CUDNN_TENSOR_NCHW}) {
      for (const auto type : {CUDNN_DATA_FLOAT, CUDNN_DATA_BFLOAT16}) {
        const ConvolutionCase one = {.groups = groups, .format = format, .type = type};
        CheckForward(one);
        CheckBackward(one);
      }
    }
  }
}

TEST_F(CudnnTest, FindsAWorkspaceThatIsTooSmall) {
  Describe({});
  size_t bytes = 0;
  cudnnGetConvolutionForwardWorkspaceSize(dnn_, x_, w_, convolution_, y_, kForward, &bytes);
  ViolationRecorder recorder;
  EXPECT_EQ(
      cudnnConvolutionForward(dnn_, &kOne, x_, UploadNumbers(0), w_, UploadNumbers(1), convolution_,
                              kForward, space_, bytes - 1, &kZero, y_, AllocateNumbers(2)),
      CUDNN_STATUS_BAD_PARAM);
  EXPECT_THAT(recorder.Take(), ElementsAre(HasSubstr("the call needs")));
}

TEST_F(CudnnTest, FindsAlgorithmsThatGiveOtherBitsEachTime) {
  Describe({});
  size_t bytes = 0;
  ViolationRecorder recorder;
  EXPECT_EQ(cudnnGetConvolutionBackwardFilterWorkspaceSize(
                dnn_, x_, y_, convolution_, w_, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0, &bytes),
            CUDNN_STATUS_NOT_SUPPORTED);
  EXPECT_THAT(recorder.Take(), ElementsAre(HasSubstr("nondeterministic algorithm")));
}

TEST_F(CudnnTest, RefusesMixedTypesWithoutAViolation) {
  const ConvolutionCase one;
  Describe(one);
  cudnnSetFilter4dDescriptor(w_, CUDNN_DATA_BFLOAT16, one.format, one.k, one.c, one.r, one.s);
  size_t bytes = 0;
  EXPECT_EQ(
      cudnnGetConvolutionForwardWorkspaceSize(dnn_, x_, w_, convolution_, y_, kForward, &bytes),
      CUDNN_STATUS_NOT_SUPPORTED);
}

TEST_F(CudnnTest, FindsAnOutputOfAnotherShape) {
  const ConvolutionCase one;
  Describe(one);
  cudnnSetTensor4dDescriptor(y_, one.format, one.type, one.n, one.k, one.out_h() + 1, one.out_w());
  size_t bytes = 0;
  ViolationRecorder recorder;
  EXPECT_EQ(
      cudnnGetConvolutionForwardWorkspaceSize(dnn_, x_, w_, convolution_, y_, kForward, &bytes),
      CUDNN_STATUS_BAD_PARAM);
  EXPECT_THAT(recorder.Take(), ElementsAre(HasSubstr("an output of 2 x 6 x 4 x 4")));
}

}  // namespace
}  // namespace muster::software_gpu
