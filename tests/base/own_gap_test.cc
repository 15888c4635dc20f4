#include "common/base/own_gap.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

using std::chrono::seconds;
using Clock = OwnGap::Clock;

TEST(OwnGap, IsNoneWhileThisProcessLooksAsOftenAsUsual) {
  OwnGap gap{seconds(4)};
  const Clock::time_point begin = Clock::now();
  (void)gap.Look(begin);
  EXPECT_EQ(gap.Look(begin + seconds(4)), Clock::duration::zero());
  EXPECT_EQ(gap.Look(begin + seconds(8)), Clock::duration::zero());
}

TEST(OwnGap, IsTheTimeAwayButForAPartOfTheUsual) {
  OwnGap gap{seconds(4)};
  const Clock::time_point begin = Clock::now();
  (void)gap.Look(begin);
  EXPECT_EQ(gap.Look(begin + seconds(100)), seconds(99));
  EXPECT_EQ(gap.Look(begin + seconds(101)), Clock::duration::zero()) << "counted twice";
}

// A process that is slow for good: each time away is forgiven but for a second, and these add up.
TEST(OwnGap, DoesNotHoldUpADeadlineForEver) {
  OwnGap gap{seconds(4)};
  Clock::time_point now = Clock::now(), began = now;
  (void)gap.Look(now);
  for (int i = 0; i < 30; ++i) {
    now += seconds(5);
    began = WithoutGap(began, gap.Look(now), now);
  }
  EXPECT_EQ(now - began, seconds(30));
}

TEST(WithoutGap, NeverLiesInTheFuture) {
  const Clock::time_point now = Clock::now();
  EXPECT_EQ(WithoutGap(now - seconds(10), seconds(4), now), now - seconds(6));
  EXPECT_EQ(WithoutGap(now - seconds(10), seconds(10), now), now);
  // It was heard at the end of the gap.
  EXPECT_EQ(WithoutGap(now - seconds(1), seconds(10), now), now);
}

}  // namespace
}  // namespace muster
