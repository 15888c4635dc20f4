// The positions of gradients in a worker's gradient buffers.
#include "common/plan/gradient_layout.h"

#include <gtest/gtest.h>

#include <set>

namespace muster {
namespace {

using Span = GradientLayout::Span;

// Two buffers for every step, and an extra one.
const GradientLayout kLayout({10, 25, 40}, 3, 2);

constexpr size_t kArena = (64 << 10) / sizeof(float);  // whole pages

TEST(GradientLayout, HasArenasOneAfterTheOther) {
  EXPECT_EQ(kLayout.arena_floats(), 40u);
  EXPECT_EQ(kLayout.arenas(), 3u);
  EXPECT_EQ(kLayout.bytes(), 3 * kArena * sizeof(float));
  EXPECT_EQ(kLayout.used_bytes(), 2 * kArena * sizeof(float));
  EXPECT_EQ(kLayout.Arena(0), (Span{0, 40}));
  EXPECT_EQ(kLayout.Arena(2), (Span{2 * kArena, 40}));
}

TEST(GradientLayout, FindsAChunkInTheArena) {
  EXPECT_EQ(kLayout.Chunk(0), (Span{0, 10}));
  EXPECT_EQ(kLayout.Chunk(1), (Span{10, 15}));
  EXPECT_EQ(kLayout.Chunk(2), (Span{25, 15}));
  EXPECT_EQ(kLayout.Chunk(3), std::nullopt);
  EXPECT_EQ(kLayout.Chunk(0xffffffff), std::nullopt);
}

TEST(GradientLayout, FindsAChunkInTheMemory) {
  EXPECT_EQ(kLayout.Chunk(1, 0), (Span{10, 15}));
  EXPECT_EQ(kLayout.Chunk(1, 2), (Span{2 * kArena + 10, 15}));
  EXPECT_EQ(kLayout.Chunk(1, 3), std::nullopt) << "no such buffer";
  EXPECT_EQ(kLayout.Chunk(1, 0xffffffff), std::nullopt);
  EXPECT_EQ(kLayout.Chunk(3, 0), std::nullopt) << "no such chunk";
}

TEST(GradientLayout, OfNothingHasNothing) {
  const GradientLayout empty;
  EXPECT_EQ(empty.bytes(), 0u);
  EXPECT_EQ(empty.Chunk(0), std::nullopt);
  EXPECT_EQ(empty.Chunk(0, 0), std::nullopt);
  // A worker without work.
  const GradientLayout idle({10}, 0, 0);
  EXPECT_EQ(idle.bytes(), 0u);
  EXPECT_EQ(idle.Chunk(0), (Span{0, 10}));
  EXPECT_EQ(idle.Chunk(0, 0), std::nullopt);
}

TEST(GradientLayout, SharedArenasAreWholePages) {
  EXPECT_EQ(SharedArenaFloats(0), 0u);
  EXPECT_EQ(SharedArenaFloats(1), kArena);
  EXPECT_EQ(SharedArenaFloats(kArena), kArena);
  EXPECT_EQ(SharedArenaFloats(kArena + 1), 2 * kArena);
}

// The chunks of all buffers cover every float exactly once.
TEST(GradientLayout, CoversTheMemory) {
  const GradientLayout layout({3, 4, 11}, 4, 4);
  std::set<size_t> floats;
  for (uint32_t arena = 0; arena < 4; ++arena) {
    for (uint32_t chunk = 0; chunk < 3; ++chunk) {
      const auto span = layout.Chunk(chunk, arena);
      ASSERT_TRUE(span);
      EXPECT_EQ(span->count, layout.Chunk(chunk)->count);
      EXPECT_LE((span->begin + span->count) * sizeof(float), layout.bytes());
      for (size_t i = 0; i < span->count; ++i) floats.insert(span->begin + i);
    }
  }
  EXPECT_EQ(floats.size(), 4 * 11u);
  EXPECT_EQ(*floats.begin(), 0u);
  EXPECT_EQ(*floats.rbegin(), 3 * kArena + 10);
}

}  // namespace
}  // namespace muster
