#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/nn/op_case.h"
#include "tests/nn/test_backend.h"

namespace muster {
namespace {

class PoolTest : public testing::TestWithParam<const char*> {
 protected:
  std::string Pool(int kernel, int stride, const std::string& padding) const {
    return fmt::format("{} {{ kernel: {} stride: {} padding: {} }}", GetParam(), kernel, stride,
                       padding);
  }
  std::unique_ptr<Backend> backend_ = MakeTestBackend(1);
};

TEST_P(PoolTest, MatchesTheReferenceForAnyNumberOfChannels) {
  for (const int64_t channels : {1, 3, 5, 7, 8, 17, 32, 64, 75}) {
    for (const bool after_relu : {false, true}) {
      ExpectMatchesReference(*backend_, {.layer = Pool(3, 2, "SAME"),
                                         .input = {7, 8, channels},
                                         .batch = 2,
                                         .input_is_relu = after_relu});
    }
  }
}

TEST_P(PoolTest, MatchesTheReferenceForAnySize) {
  for (int64_t size = 1; size <= 13; ++size) {
    for (const int stride : {1, 2, 3}) {
      for (const int kernel : {1, 2, 3, 5}) {
        ExpectMatchesReference(
            *backend_,
            {.layer = Pool(kernel, stride, "SAME"), .input = {size, 14 - size, 9}, .batch = 2});
        if (kernel > std::min(size, 14 - size)) continue;
        ExpectMatchesReference(
            *backend_,
            {.layer = Pool(kernel, stride, "VALID"), .input = {size, 14 - size, 3}, .batch = 5});
      }
    }
  }
}

TEST_P(PoolTest, MatchesTheReferenceForRectanglesLargeWindowsAndTwoThreads) {
  const auto two = MakeTestBackend(2);
  for (Backend* backend : {backend_.get(), two.get()}) {
    ExpectMatchesReference(*backend,
                           {.layer = std::string(GetParam()) + "{ kernel: [3, 2] stride: [1, 3] "
                                                               "padding: EXPLICIT pad: 1 }",
                            .input = {5, 9, 12},
                            .batch = 3});
    ExpectMatchesReference(*backend, {.layer = Pool(7, 3, "SAME"), .input = {2, 3, 8}});
    // More positions than fit into a byte.
    ExpectMatchesReference(
        *backend,
        {.layer = Pool(17, 4, "SAME"), .input = {20, 20, 9}, .batch = 2, .input_is_relu = true});
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, PoolTest, testing::Values("max_pool", "avg_pool"));

// 2x2 windows of an image with one channel, or with nine to use the vector code.
class MaxPoolTest : public testing::TestWithParam<int64_t> {
 protected:
  // Runs a [1, 2] window over a 1x4 image.
  void RunRow(std::vector<float> row, std::vector<float> dy) {
    const int64_t channels = GetParam();
    const auto backend = MakeTestBackend(1);
    const Layer layer = reference::MakeLayer("max_pool { kernel: [1, 2] }", {1, 4, channels});
    const auto op = backend->MakeOp(layer, {.batch = 1});
    Arena x(4 * channels), y(2 * channels), dx(4 * channels), g(2 * channels);
    for (size_t i = 0; i < x.floats().size(); ++i) x.floats()[i] = row[i / channels];
    for (size_t i = 0; i < g.floats().size(); ++i) g.floats()[i] = dy[i / channels];
    Arena state(op->state_bytes() / sizeof(float));
    op->Forward(
        {.input = x.floats().data(), .output = y.floats().data(), .state = state.floats().data()});
    op->Backward({.input = x.floats().data(),
                  .output = y.floats().data(),
                  .output_gradient = g.floats().data(),
                  .input_gradient = dx.floats().data(),
                  .state = state.floats().data()});
    for (int i = 0; i < 4; ++i) gradients_.push_back(dx.floats()[(i + 1) * channels - 1]);
    for (int i = 0; i < 2; ++i) outputs_.push_back(y.floats()[(i + 1) * channels - 1]);
  }
  std::vector<float> outputs_, gradients_;
};

TEST_P(MaxPoolTest, GivesTheGradientToTheFirstOfEqualValues) {
  RunRow({2, 2, -1, -1}, {3, 4});
  EXPECT_EQ(outputs_, (std::vector<float>{2, -1}));
  EXPECT_EQ(gradients_, (std::vector<float>{3, 0, 4, 0}));
}

TEST_P(MaxPoolTest, LetsNanAndInfinityThrough) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  RunRow({kNan, 1, 5, kNan}, {1, 1});
  EXPECT_TRUE(std::isnan(outputs_[0]) && std::isnan(outputs_[1]));
  outputs_.clear();
  RunRow({kInfinity, 1, -kInfinity, -kInfinity}, {1, 1});
  EXPECT_EQ(outputs_, (std::vector<float>{kInfinity, -kInfinity}));
}

// Windows whose last place, and the mark for none, just fit or do not fit into a byte. Zeros after
// relu get no gradient.
TEST(MaxPoolPlacesTest, TheLastPlaceOfALargeWindowGetsTheGradientUnlessItIsZeroAfterRelu) {
  const auto backend = MakeTestBackend(1);
  for (const Shape& window :
       {Shape{2, 127, 4}, Shape{15, 17, 4}, Shape{16, 16, 4}, Shape{16, 16, 3}, Shape{1, 257, 1}}) {
    for (const bool zeros : {false, true}) {
      const OpCase c{
          .layer = fmt::format("max_pool {{ kernel: [{}, {}] }}", window.height, window.width),
          .input = window,
          .input_is_relu = true};
      OpInputs inputs = RandomInputs(c);
      for (size_t i = 0; i < inputs.inputs[0].size(); ++i) {
        inputs.inputs[0][i] = zeros ? 0 : static_cast<float>(i);
      }
      ExpectMatchesReference(*backend, c, inputs);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Channels, MaxPoolTest, testing::Values(1, 8, 9, 32));

}  // namespace
}  // namespace muster
