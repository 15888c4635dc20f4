// Stragglers and stalls, as shown to observers of a run.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "ps/record/recent_times.h"
#include "ps/record/stall_watch.h"
#include "ps/record/straggler.h"

namespace muster {
namespace watch_test {

using std::chrono::seconds;

wire::StepTimes Times(int64_t step, double compute_ms, double input_ms = 0, double wait_ms = 0) {
  wire::StepTimes times;
  times.set_step(step);
  times.set_compute_ms(compute_ms);
  times.set_input_ms(input_ms);
  times.set_wait_ms(wait_ms);
  return times;
}

TEST(RecentTimesTest, SpreadOfTheLastSteps) {
  RecentTimes recent(2);
  for (int i = 0; i < 1000; ++i) recent.Add(0, Times(i, 999));  // will be forgotten
  for (int i = 0; i < 200; ++i) recent.Add(0, Times(i, i, 0, 7));
  const RecentTimes::Parts parts = recent.Of(0);
  EXPECT_EQ(parts[0].p50, 100);
  EXPECT_EQ(parts[0].p99, 197);
  EXPECT_EQ(parts[3].p50, 7);
  EXPECT_EQ(recent.MeanBusy(0), 99.5);
  EXPECT_EQ(recent.UsualBusy(0, 3), 197.5);  // 199 is left out
  EXPECT_EQ(recent.Of(1)[0].p50, 0);
  EXPECT_EQ(recent.UsualBusy(1, 3), 0);
  recent.Add(7, Times(0, 1));  // an unknown rank
}

class StragglerTest : public ::testing::Test {
 protected:
  // Does steps in which rank r computes for busy[r] ms. Returns the result of the last check.
  std::optional<StragglerWatch::Change> Run(const std::vector<double>& busy, int steps = 15) {
    std::optional<StragglerWatch::Change> said;
    for (int i = 0; i < steps; ++i, ++step_) {
      for (uint32_t rank = 0; rank < busy.size(); ++rank) {
        recent_.Add(rank, Times(step_, busy[rank] / 2, busy[rank] / 2));
      }
      now_ += seconds(1);
      if (auto change = watch_.Look(recent_, step_ + 1, now_)) {
        EXPECT_FALSE(said) << "reported twice";
        said = change;
      }
    }
    return said;
  }
  RecentTimes recent_{3};
  StragglerWatch watch_;
  StragglerWatch::Time now_{};
  int64_t step_ = 0;
};

TEST_F(StragglerTest, SaysWhoWhileItIsSlowAndThatItIsOver) {
  EXPECT_FALSE(Run({100, 102, 101}, 30));
  ASSERT_TRUE(watch_.slowest());
  EXPECT_EQ(watch_.slowest()->rank, 1u);
  EXPECT_FALSE(watch_.slowest()->straggles);

  const auto slow = Run({100, 102, 300});
  ASSERT_TRUE(slow);
  EXPECT_FALSE(slow->over);
  EXPECT_EQ(slow->who.rank, 2u);
  EXPECT_GT(slow->who.busy_ms, 1.5 * 102);
  EXPECT_EQ(slow->who.others_ms, 101);
  EXPECT_NEAR(static_cast<double>(slow->who.since_step), 30, 3);
  EXPECT_FALSE(Run({100, 102, 300}, 100));  // reported a single time
  EXPECT_TRUE(watch_.slowest()->straggles);
  EXPECT_EQ(watch_.slowest()->busy_ms, 300);

  EXPECT_FALSE(Run({100, 102, 140}, 30));  // better, but still slow
  const auto over = Run({100, 102, 101});
  ASSERT_TRUE(over);
  EXPECT_TRUE(over->over);
  EXPECT_EQ(over->who.rank, 2u);
}

TEST_F(StragglerTest, AmongNearlyEqualOnesTheSlowestStays) {
  EXPECT_FALSE(Run({100, 104, 102}, 15));
  EXPECT_FALSE(Run({106, 104, 102}, 30));
  EXPECT_EQ(watch_.slowest()->rank, 1u);
  EXPECT_FALSE(Run({130, 104, 102}, 30));
  EXPECT_EQ(watch_.slowest()->rank, 0u);
}

TEST_F(StragglerTest, ARankThatIsFasterThanTheOthersIsNotTheSlowest) {
  EXPECT_FALSE(Run({100, 110, 100}, 15));
  EXPECT_EQ(watch_.slowest()->rank, 1u);
  EXPECT_FALSE(Run({108, 102, 108}, 30));
  EXPECT_NE(watch_.slowest()->rank, 1u);
  EXPECT_GE(watch_.slowest()->busy_ms, watch_.slowest()->others_ms);
}

TEST_F(StragglerTest, OneSlowStepIsNone) {
  EXPECT_FALSE(Run({100, 100, 100}, 30));
  EXPECT_FALSE(Run({100, 100, 5000}, 1));
  EXPECT_FALSE(Run({100, 100, 100}, 30));
}

TEST_F(StragglerTest, FewMillisecondsAreNone) {
  EXPECT_FALSE(Run({2, 2, 6}, 60));
  EXPECT_EQ(watch_.slowest()->rank, 2u);
  EXPECT_FALSE(watch_.slowest()->straggles);
}

TEST_F(StragglerTest, OneThatComesAndGoesIsSaidOnceAMinute) {
  EXPECT_TRUE(Run({100, 100, 300}, 20));
  EXPECT_TRUE(Run({100, 100, 100}, 15));   // over
  EXPECT_FALSE(Run({100, 100, 300}, 15));  // slow again within a minute, so its end is not reported
  EXPECT_FALSE(Run({100, 100, 100}, 20));
  EXPECT_TRUE(Run({100, 100, 300}, 15));
}

TEST(StragglerAloneTest, OneRankHasNobodyToBeSlowerThan) {
  RecentTimes recent(1);
  StragglerWatch watch;
  for (int i = 0; i < 50; ++i) recent.Add(0, Times(i, 1000));
  EXPECT_FALSE(watch.Look(recent, 50, {}));
  EXPECT_FALSE(watch.slowest());
}

TEST(StallWatchTest, SaysItLaterAndLater) {
  StallWatch stall;
  EXPECT_FALSE(stall.Look(4.9, 0.1));
  EXPECT_TRUE(stall.Look(5.1, 0.1));
  EXPECT_FALSE(stall.Look(9, 0.1));
  EXPECT_TRUE(stall.Look(10.5, 0.1));
  EXPECT_EQ(stall.Done(12), 12);
  EXPECT_FALSE(stall.Done(12));
  EXPECT_FALSE(stall.Look(20, 10));  // steps of 10 s: 50 s
  EXPECT_TRUE(stall.Look(51, 10));
}

}  // namespace watch_test
}  // namespace muster
