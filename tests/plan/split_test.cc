// Work is divided to minimize the time of the slowest worker.
#include "common/plan/split.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <limits>
#include <numeric>
#include <random>

#include "common/plan/slices.h"

namespace muster {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Ge;

// The shortest time of all divisions, by brute force.
double Shortest(int64_t pieces, const std::vector<double>& times, size_t from, int64_t least) {
  if (from + 1 == times.size()) {
    return pieces >= least ? static_cast<double>(pieces) * times[from]
                           : std::numeric_limits<double>::infinity();
  }
  double shortest = std::numeric_limits<double>::infinity();
  for (int64_t mine = least; mine <= pieces; ++mine) {
    const double rest = Shortest(pieces - mine, times, from + 1, least);
    shortest = std::min(shortest, std::max(rest, static_cast<double>(mine) * times[from]));
  }
  return shortest;
}

TEST(Split, NoDivisionIsShorter) {
  std::mt19937 random(1);
  for (int round = 0; round < 400; ++round) {
    const size_t parts = 1 + random() % 4;
    const int64_t pieces = static_cast<int64_t>(random() % 24);
    const int64_t least = static_cast<int64_t>(random() % 2);
    std::vector<double> times(parts);
    for (double& time : times) time = 0.5 + static_cast<double>(random() % 1000) / 100;
    const std::vector<int64_t> sizes = SplitByTime(pieces, times, least);
    ASSERT_EQ(std::accumulate(sizes.begin(), sizes.end(), int64_t{0}), pieces);
    const int64_t floor = pieces < static_cast<int64_t>(parts) * least ? 0 : least;
    ASSERT_THAT(sizes, Each(Ge(floor)));
    ASSERT_DOUBLE_EQ(Longest(sizes, times), Shortest(pieces, times, 0, floor))
        << pieces << " pieces, round " << round;
  }
}

TEST(Split, WhoTakesTwiceAsLongGetsHalfAsMuch) {
  EXPECT_THAT(SplitByTime(16, std::vector<double>{10, 20}), ElementsAre(11, 5));
  EXPECT_THAT(SplitByTime(16, std::vector<double>{10, 10, 10, 20}), ElementsAre(5, 5, 4, 2));
  EXPECT_THAT(SplitByTime(64, std::vector<double>{1, 1, 2}), ElementsAre(26, 26, 12));
}

// A worker without slices cannot show that it is fast again.
TEST(Split, EverybodyGetsTheLeast) {
  EXPECT_THAT(SplitByTime(8, std::vector<double>{1, 1000}, 1), ElementsAre(7, 1));
  EXPECT_THAT(SplitByTime(8, std::vector<double>{1, 1000}, 0), ElementsAre(8, 0));
  EXPECT_THAT(SplitByTime(2, std::vector<double>{3, 1, 2}, 1), ElementsAre(0, 2, 0));
}

TEST(Split, EvenSizesAreThoseOfEvenParts) {
  for (const int64_t pieces : {0, 1, 7, 16, 100}) {
    for (size_t parts = 1; parts < 9; ++parts) {
      const std::vector<int64_t> sizes = EvenSizes(pieces, parts);
      for (size_t i = 0; i < parts; ++i) {
        EXPECT_EQ(sizes[i],
                  EvenPart(pieces, static_cast<int64_t>(parts), static_cast<int64_t>(i)).size());
      }
    }
  }
}

}  // namespace
}  // namespace muster
