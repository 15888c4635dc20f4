// A server that writes the run's state is waited for, but not for ever.
#include "cli/job/stop_stages.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

// When everybody is killed, if the server says each second until `last` that it writes.
double KilledAt(StopStages& stages, double last) {
  for (int tenths = 0; tenths < 5000; ++tenths) {
    const double now = tenths / 10.0;
    if (tenths % 10 == 0 && now <= last) stages.WaitForServer(now);
    if (stages.Take(now, /*server_gone=*/false).kill_all) return now;
  }
  return kNever;
}

TEST(StopStagesTest, NobodyIsKilledWhileTheServerWrites) {
  StopStages silent, writing, stuck;
  silent.BeginWithServer(0);
  EXPECT_NEAR(KilledAt(silent, -1), 3.5, 0.11);
  writing.BeginWithServer(0);
  EXPECT_NEAR(KilledAt(writing, 20), 20 + 3 + 1.5, 0.11);
  stuck.BeginWithServer(0);
  const double most = KilledAt(stuck, 450);
  EXPECT_GT(most, 30);
  EXPECT_LT(most, 400);
}

TEST(StopStagesTest, AlsoAfterAFailure) {
  StopStages stages;
  stages.BeginAfterFailure(0, /*joined=*/true);
  EXPECT_NEAR(KilledAt(stages, 10), 10 + 3 + 1.5, 0.11);
}

TEST(StopStagesTest, ASecondRequestKillsAtOnce) {
  StopStages stages;
  stages.BeginWithServer(0);
  (void)stages.Take(0, false);
  stages.WaitForServer(1);
  stages.Kill(2);
  stages.WaitForServer(2);
  EXPECT_TRUE(stages.Take(2.1, false).kill_all);
}

}  // namespace
}  // namespace muster
