// Detecting suspensions of this process, and waits that do not count them.
#include "common/base/process.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

using std::chrono::seconds;
using Clock = SuspensionDetector::Clock;

TEST(SuspensionDetector, FindsNoneWhileThisProcessLooksAsOftenAsUsual) {
  SuspensionDetector suspensions{seconds(4)};
  const Clock::time_point begin = Clock::now();
  (void)suspensions.Look(begin);
  EXPECT_EQ(suspensions.Look(begin + seconds(4)), Clock::duration::zero());
  EXPECT_EQ(suspensions.Look(begin + seconds(8)), Clock::duration::zero());
}

TEST(SuspensionDetector, FindsTheTimeAwayButForAPartOfTheUsual) {
  SuspensionDetector suspensions{seconds(4)};
  const Clock::time_point begin = Clock::now();
  (void)suspensions.Look(begin);
  EXPECT_EQ(suspensions.Look(begin + seconds(100)), seconds(99));
  EXPECT_EQ(suspensions.Look(begin + seconds(101)), Clock::duration::zero()) << "counted twice";
}

// If a process is slow permanently, deadlines are extended by each delay minus a second, which adds
// up.
TEST(SuspensionDetector, DoesNotHoldUpADeadlineForEver) {
  SuspensionDetector suspensions{seconds(4)};
  Clock::time_point now = Clock::now(), began = now;
  (void)suspensions.Look(now);
  for (int i = 0; i < 30; ++i) {
    now += seconds(5);
    began = WithoutSuspension(began, suspensions.Look(now), now);
  }
  EXPECT_EQ(now - began, seconds(30));
}

TEST(WithoutSuspension, NeverLiesInTheFuture) {
  const Clock::time_point now = Clock::now();
  EXPECT_EQ(WithoutSuspension(now - seconds(10), seconds(4), now), now - seconds(6));
  EXPECT_EQ(WithoutSuspension(now - seconds(10), seconds(10), now), now);
  // The last sign of life was at the end of the suspension.
  EXPECT_EQ(WithoutSuspension(now - seconds(1), seconds(10), now), now);
}

}  // namespace
}  // namespace muster
