// The parts of a chunk arrive in any order and any subtrees.
#include "ps/update/partial_gradients.h"

#include <gtest/gtest.h>

#include <array>

namespace muster {
namespace {

constexpr TreeNode kLeft{1, 0};   // slices 0 and 1
constexpr TreeNode kRight{1, 1};  // slices 2 and 3

class PartialGradientsTest : public ::testing::Test {
 protected:
  PartialGradientsTest() { gradients_.BeginStep(4); }

  bool Add(const TreeNode& node, size_t value = 0) {
    return gradients_.Add(0, 0, node, false, {.data = &values_[value], .bytes = sizeof(float) * 2});
  }

  const std::array<float, 8> values_{1, 2, 3, 4, 5, 6, 7, 8};
  const std::array<Chunk, 1> chunks_{Chunk{.begin = 0, .end = 2}};
  PartialGradients gradients_{chunks_, wire::FP32};
};

TEST_F(PartialGradientsTest, AChunkIsCompleteWithAllOfItsSlices) {
  EXPECT_TRUE(Add(kRight));
  EXPECT_FALSE(gradients_.Complete(0));
  EXPECT_TRUE(Add({0, 1}));
  EXPECT_FALSE(gradients_.Complete(0));
  EXPECT_TRUE(Add({0, 0}));
  EXPECT_TRUE(gradients_.Complete(0));
}

TEST_F(PartialGradientsTest, ThePartsAreInTheOrderOfTheSlices) {
  EXPECT_TRUE(Add(kRight, 4));
  EXPECT_TRUE(Add(kLeft, 2));
  const ChunkGradient gradient = gradients_.PartsOf(0);
  ASSERT_EQ(gradient.parts.size(), 2u);
  EXPECT_EQ(gradient.parts[0], &values_[2]);
  EXPECT_EQ(gradient.parts[1], &values_[4]);
}

// Nearly all chunks arrive in the same subtrees, so their sum is computed a single time.
TEST_F(PartialGradientsTest, TheSameSubtreesHaveTheSameSum) {
  EXPECT_TRUE(Add(kLeft));
  EXPECT_TRUE(Add(kRight));
  const TreeSum* const sum = gradients_.PartsOf(0).tree;
  gradients_.BeginStep(4);
  for (const uint32_t slice : {3, 1, 0, 2}) EXPECT_TRUE(Add({0, slice}));
  EXPECT_NE(gradients_.PartsOf(0).tree, sum);
  gradients_.BeginStep(4);
  EXPECT_TRUE(Add(kRight));
  EXPECT_TRUE(Add(kLeft));
  EXPECT_EQ(gradients_.PartsOf(0).tree, sum);
}

TEST_F(PartialGradientsTest, AnotherSizeIsRefused) {
  EXPECT_FALSE(gradients_.Add(0, 0, kLeft, false, {.data = values_.data(), .bytes = 4}));
  EXPECT_FALSE(gradients_.Add(0, 0, kLeft, true, {.data = values_.data(), .bytes = 8}));
  EXPECT_TRUE(gradients_.parts(0).empty());
}

}  // namespace
}  // namespace muster
