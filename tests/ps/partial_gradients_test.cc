// Each slice of a chunk is added once, whatever subtrees it comes in.
#include "ps/partial_gradients.h"

#include <gtest/gtest.h>

#include <array>

namespace muster {
namespace {

using Result = PartialGradients::Result;

constexpr TreeNode kLeft{1, 0};   // slices 0 and 1
constexpr TreeNode kRight{1, 1};  // slices 2 and 3
constexpr TreeNode kFirst{0, 0};
constexpr TreeNode kSecond{0, 1};

class PartialGradientsTest : public ::testing::Test {
 protected:
  PartialGradientsTest() {
    gradients_.Expect({.slices = 4, .nodes = {{kLeft}, {kRight}}});
    gradients_.BeginStep();
  }

  Result Add(const TreeNode& node) {
    return gradients_.Add(0, 0, node, false, {.data = values_.data(), .bytes = sizeof(values_)});
  }

  const std::array<float, 2> values_{1, 2};
  const std::array<Chunk, 1> chunks_{Chunk{.begin = 0, .end = 2}};
  PartialGradients gradients_{chunks_, wire::FP32};
};

TEST_F(PartialGradientsTest, TheExpectedSubtreesCompleteAChunk) {
  EXPECT_EQ(Add(kLeft), Result::kAccepted);
  EXPECT_FALSE(gradients_.Complete(0));
  EXPECT_EQ(Add(kRight), Result::kAccepted);
  EXPECT_TRUE(gradients_.Complete(0));
}

TEST_F(PartialGradientsTest, ASubtreeCountsOnce) {
  EXPECT_EQ(Add(kLeft), Result::kAccepted);
  EXPECT_EQ(Add(kLeft), Result::kCovered);
  EXPECT_EQ(gradients_.SlicesOf(0, kLeft), 2);
}

TEST_F(PartialGradientsTest, PartOfASubtreeThatIsHereIsCovered) {
  EXPECT_EQ(Add(kLeft), Result::kAccepted);
  EXPECT_EQ(Add(kSecond), Result::kCovered);
}

// Half of a lost worker's subtree has come from somebody else before the worker's own arrives.
TEST_F(PartialGradientsTest, AnExpectedSubtreeIsCoveredOnceAPartOfItIsHere) {
  EXPECT_EQ(Add(kFirst), Result::kAccepted);
  EXPECT_EQ(Add(kLeft), Result::kCovered);
  EXPECT_EQ(gradients_.SlicesOf(0, kLeft), 1);
  EXPECT_EQ(Add(kRight), Result::kAccepted);
  EXPECT_FALSE(gradients_.Complete(0));
  EXPECT_EQ(Add(kSecond), Result::kAccepted);
  EXPECT_TRUE(gradients_.Complete(0));
}

TEST_F(PartialGradientsTest, AWrongSizeOrChunkIsRefused) {
  EXPECT_EQ(gradients_.Add(0, 0, kLeft, false, {.data = values_.data(), .bytes = 4}),
            Result::kWrongSize);
  EXPECT_EQ(gradients_.Add(0, 0, kLeft, true, {.data = values_.data(), .bytes = sizeof(values_)}),
            Result::kWrongSize);
  EXPECT_EQ(gradients_.Add(0, 1, kLeft, true, {}), Result::kUnknownChunk);
}

}  // namespace
}  // namespace muster
