// Where a worker's gradients lie in its gradient buffers.
#include "common/plan/gradient_layout.h"

#include <gtest/gtest.h>

#include <set>

namespace muster {
namespace {

using Span = GradientLayout::Span;

// Three of four slices: the pair of the first two, and the third one alone.
const GradientLayout kLayout({10, 25, 40}, {{1, 0}, {0, 2}});

TEST(GradientLayout, HasOneArenaPerPart) {
  EXPECT_EQ(kLayout.arena_floats(), 40u);
  EXPECT_EQ(kLayout.gradient_buffers(), 2u);
  EXPECT_EQ(kLayout.bytes(), 2 * 40 * sizeof(float));
  EXPECT_EQ(kLayout.GradientBuffer(0), (Span{0, 40}));
  EXPECT_EQ(kLayout.GradientBuffer(1), (Span{40, 40}));
}

TEST(GradientLayout, FindsAChunkInTheArena) {
  EXPECT_EQ(kLayout.Chunk(0), (Span{0, 10}));
  EXPECT_EQ(kLayout.Chunk(1), (Span{10, 15}));
  EXPECT_EQ(kLayout.Chunk(2), (Span{25, 15}));
  EXPECT_EQ(kLayout.Chunk(3), std::nullopt);
  EXPECT_EQ(kLayout.Chunk(0xffffffff), std::nullopt);
}

TEST(GradientLayout, FindsAPartsChunkInTheMemory) {
  EXPECT_EQ(kLayout.Part(1, {1, 0}), (Span{10, 15}));
  EXPECT_EQ(kLayout.Part(1, {0, 2}), (Span{50, 15}));
  EXPECT_EQ(kLayout.Part(1, {0, 0}), std::nullopt) << "a part of one of its parts";
  EXPECT_EQ(kLayout.Part(3, {1, 0}), std::nullopt);
}

TEST(GradientLayout, OfNothingHasNothing) {
  const GradientLayout empty;
  EXPECT_EQ(empty.bytes(), 0u);
  EXPECT_EQ(empty.Chunk(0), std::nullopt);
  EXPECT_EQ(empty.Part(0, {0, 0}), std::nullopt);
  // A worker without slices, which pushes nothing.
  const GradientLayout idle({10}, {});
  EXPECT_EQ(idle.bytes(), 0u);
  EXPECT_EQ(idle.Chunk(0), (Span{0, 10}));
}

// Chunks of all parts together are the memory, each float once.
TEST(GradientLayout, CoversTheMemory) {
  std::set<size_t> floats;
  for (const TreeNode& part : Decompose({1, 7}, 8)) {
    for (uint32_t chunk = 0; chunk < 3; ++chunk) {
      const GradientLayout layout({3, 4, 11}, Decompose({1, 7}, 8));
      const auto span = layout.Part(chunk, part);
      ASSERT_TRUE(span);
      EXPECT_EQ(span->count, layout.Chunk(chunk)->count);
      for (size_t i = 0; i < span->count; ++i) floats.insert(span->begin + i);
    }
  }
  EXPECT_EQ(floats.size(), 4 * 11u);
  EXPECT_EQ(*floats.begin(), 0u);
  EXPECT_EQ(*floats.rbegin(), 4 * 11u - 1);
}

}  // namespace
}  // namespace muster
