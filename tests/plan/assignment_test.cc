// The assignment of slices to workers.
#include "common/plan/assignment.h"

#include <gtest/gtest.h>

#include <numeric>

namespace muster {
namespace {

TEST(Assignment, EvenSharesCoverEachSliceOnce) {
  for (const int64_t slices : {1, 2, 3, 7, 8, 12, 64}) {
    for (uint32_t ranks = 1; ranks <= 9 && ranks <= slices; ++ranks) {
      const Assignment assignment = AssignEvenly(slices, ranks);
      ASSERT_EQ(assignment.ranks(), ranks);
      int64_t next = 0;
      for (uint32_t rank = 0; rank < ranks; ++rank) {
        const std::vector<Range> mine = assignment.SlicesOf(rank);
        ASSERT_EQ(mine.size(), 1u);  // adjacent
        EXPECT_EQ(mine[0], EvenPart(slices, ranks, rank));
        EXPECT_EQ(mine[0].begin, next);
        next = mine[0].end;
      }
      EXPECT_EQ(next, slices);
    }
  }
}

// Shares that are pushed slice by slice have the same slices.
TEST(Assignment, SharesMayComeSliceBySlice) {
  for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{4, 4}, {1, 0, 5}, {7}}) {
    const int64_t slices = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
    const auto few = NeighbouringShares(sizes), each = NeighbouringShares(sizes, true);
    ASSERT_EQ(each.size(), sizes.size());
    for (size_t i = 0; i < sizes.size(); ++i) {
      EXPECT_EQ(std::ssize(each[i]), sizes[i]);
      EXPECT_EQ(CoveredBy(each[i], slices), CoveredBy(few[i], slices));
    }
  }
}

// After the loss of a worker, another one computes slices that are not adjacent.
TEST(Assignment, AShareMayHaveHoles) {
  const Assignment assignment{.slices = 6, .nodes = {{{1, 0}, {0, 5}}, {{1, 1}, {0, 4}}}};
  EXPECT_EQ(assignment.SlicesOf(0), (std::vector<Range>{{0, 2}, {5, 6}}));
  EXPECT_EQ(assignment.SlicesOf(1), (std::vector<Range>{{2, 5}}));
}

}  // namespace
}  // namespace muster
