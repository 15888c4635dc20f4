#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "tests/nn/op_case.h"
#include "tests/nn/test_backend.h"

namespace muster {
namespace {

std::string Conv(int filters, int kernel, int stride, const std::string& padding) {
  return fmt::format("conv2d {{ filters: {} kernel: {} stride: {} padding: {} }}", filters, kernel,
                     stride, padding);
}

class Conv2dTest : public testing::Test {
 protected:
  std::unique_ptr<Backend> backend_ = MakeTestBackend(1);
};

TEST_F(Conv2dTest, MatchesTheReferenceForAnyNumberOfChannels) {
  for (const int in : {1, 3, 5, 7, 8, 17, 64}) {
    for (const int out : {1, 3, 7, 16, 17, 64}) {
      ExpectMatchesReference(*backend_,
                             {.layer = Conv(out, 3, 1, "SAME"), .input = {6, 5, in}, .batch = 2});
    }
  }
}

TEST_F(Conv2dTest, MatchesTheReferenceForAnySize) {
  for (int64_t size = 1; size <= 13; ++size) {
    for (const int stride : {1, 2, 3}) {
      for (const int kernel : {1, 2, 3, 5}) {
        ExpectMatchesReference(*backend_, {.layer = Conv(8, kernel, stride, "SAME"),
                                           .input = {size, 14 - size, 3},
                                           .batch = size % 2 == 0 ? 1 : 5});
        ExpectMatchesReference(
            *backend_,
            {.layer = Conv(8, kernel, stride, "SAME"), .input = {size, size, 8}, .batch = 2});
        if (kernel > std::min(size, 14 - size)) continue;
        ExpectMatchesReference(
            *backend_,
            {.layer = Conv(5, kernel, stride, "VALID"), .input = {size, 14 - size, 7}, .batch = 2});
      }
    }
  }
}

TEST_F(Conv2dTest, MatchesTheReferenceForRectanglesAndKernelsLargerThanTheImage) {
  ExpectMatchesReference(*backend_,
                         {.layer = "conv2d { filters: 8 kernel: 7 padding: EXPLICIT pad: 3 }",
                          .input = {2, 3, 8},
                          .batch = 5});
  for (const char* const stride : {"[1, 2]", "[2, 1]"}) {  // of single pixels
    ExpectMatchesReference(
        *backend_, {.layer = fmt::format("conv2d {{ filters: 4 kernel: 1 stride: {} }}", stride),
                    .input = {5, 7, 3},
                    .batch = 2});
  }
  ExpectMatchesReference(
      *backend_, {.layer = "conv2d { filters: 4 kernel: [5, 2] stride: [1, 2] padding: SAME }",
                  .input = {3, 9, 5},
                  .batch = 2});
  ExpectMatchesReference(
      *backend_, {.layer = "conv2d { filters: 16 kernel: [1, 11] stride: [3, 1] padding: SAME }",
                  .input = {7, 4, 16},
                  .batch = 2});
  ExpectMatchesReference(
      *backend_, {.layer = "conv2d { filters: 9 kernel: 4 stride: 2 padding: EXPLICIT pad: 3 }",
                  .input = {5, 6, 2},
                  .batch = 3});
}

TEST_F(Conv2dTest, MatchesTheReferenceInTheTutorialsShapes) {
  ExpectMatchesReference(*backend_, {.layer = Conv(64, 5, 1, "SAME"),
                                     .input = {24, 24, 3},
                                     .batch = 2,
                                     .activation = Activation::kRelu,
                                     .input_gradient = false});
  ExpectMatchesReference(*backend_, {.layer = Conv(64, 5, 1, "SAME"),
                                     .input = {12, 12, 64},
                                     .batch = 3,
                                     .activation = Activation::kRelu});
}

TEST_F(Conv2dTest, FusedAndUnfusedVariantsMatchTheReference) {
  for (const int channels : {3, 16, 64}) {
    for (int variant = 0; variant < 8; ++variant) {
      ExpectMatchesReference(*backend_,
                             {.layer = Conv(channels, 3, 1 + variant % 2, "SAME"),
                              .input = {7, 8, channels},
                              .batch = 2,
                              .activation = variant & 1 ? Activation::kRelu : Activation::kNone,
                              .input_is_relu = (variant & 2) != 0,
                              .input_gradient = (variant & 4) != 0});
    }
    ExpectMatchesReference(
        *backend_,
        {.layer = fmt::format("conv2d {{ filters: {} kernel: 3 use_bias: false }}", channels),
         .input = {7, 8, channels},
         .batch = 2,
         .activation = Activation::kRelu});
  }
}

TEST_F(Conv2dTest, GroupsMatchTheReference) {
  struct Groups {
    int64_t in;
    int filters, groups;
  };
  // Depthwise (with one and two filters per channel, and channel counts below a vector), and wider
  // groups.
  for (const Groups& g :
       {Groups{3, 3, 3}, Groups{8, 8, 8}, Groups{24, 24, 24}, Groups{13, 13, 13}, Groups{3, 24, 3},
        Groups{8, 16, 8}, Groups{6, 4, 2}, Groups{32, 16, 2}, Groups{48, 24, 3}}) {
    for (int variant = 0; variant < 6; ++variant) {
      ExpectMatchesReference(
          *backend_, {.layer = fmt::format("conv2d {{ filters: {} kernel: {} stride: {} padding: "
                                           "SAME groups: {} use_bias: {} }}",
                                           g.filters, 3 - variant / 2, 1 + variant % 2, g.groups,
                                           variant % 2 == 0),
                      .input = {7, 9, g.in},
                      .batch = 3,
                      .activation = variant < 2 ? Activation::kRelu : Activation::kNone,
                      .input_is_relu = variant == 1});
    }
  }
}

TEST_F(Conv2dTest, ReluLetsNanThrough) {
  for (const char* const groups : {"", "groups: 4"}) {
    const OpCase c{.layer = fmt::format("conv2d {{ filters: 4 kernel: 1 {} }}", groups),
                   .input = {2, 2, 4},
                   .activation = Activation::kRelu};
    OpInputs inputs = RandomInputs(c);
    inputs.inputs[0][4 + 2] = std::numeric_limits<float>::quiet_NaN();
    const OpResult got = RunOp(*backend_, c, inputs);
    EXPECT_TRUE(std::isnan(got.output.floats()[4 + 2])) << c.layer;
    EXPECT_TRUE(std::isfinite(got.output.floats()[2])) << c.layer;
  }
}

TEST_F(Conv2dTest, MatchesTheReferenceWithTwoThreads) {
  const auto backend = MakeTestBackend(2);
  for (const int channels : {3, 16, 17}) {
    ExpectMatchesReference(*backend, {.layer = Conv(channels, 5, 1, "SAME"),
                                      .input = {12, 12, channels},
                                      .batch = 5,
                                      .activation = Activation::kRelu});
  }
}

}  // namespace
}  // namespace muster
