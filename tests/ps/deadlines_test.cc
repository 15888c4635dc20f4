// The server's deadlines.
#include "ps/run/deadlines.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

config::Deadlines Limits() {
  config::Deadlines limits;
  limits.set_start_s(60);
  limits.set_first_step_s(50);
  limits.set_step_s(30);
  limits.set_step_median_factor(10);
  limits.set_progress_s(20);
  return limits;
}

// Uses times far before and after the present, so no test waits.
class DeadlinesTest : public ::testing::Test {
 protected:
  const Deadlines::Time now_ = Deadlines::Clock::now();
  Deadlines deadlines_{Limits(), now_};
};

TEST_F(DeadlinesTest, EachWaitHasItsOwn) {
  EXPECT_FALSE(deadlines_.JoinMissed(now_ + seconds(59)));
  EXPECT_EQ(deadlines_.JoinMissed(now_ + seconds(61)), 60);
  EXPECT_FALSE(deadlines_.ReadyMissed(now_ + seconds(49)));
  EXPECT_EQ(deadlines_.ReadyMissed(now_ + seconds(51)), 50);
}

TEST_F(DeadlinesTest, TheFirstStepAndSlowOnesMayTakeLonger) {
  EXPECT_FALSE(deadlines_.StepMissed(now_ + seconds(49), std::nullopt));
  EXPECT_EQ(deadlines_.StepMissed(now_ + seconds(51), std::nullopt), 50);
  EXPECT_EQ(deadlines_.StepMissed(now_ + seconds(31), 0.1), 30);  // fast steps: step_s
  EXPECT_FALSE(deadlines_.StepMissed(now_ + seconds(31), 4));
  EXPECT_EQ(deadlines_.StepMissed(now_ + seconds(41), 4), 40);  // ten times the median
}

// Every block of an evaluation, and the end of the step before it, counts as a sign of life.
TEST_F(DeadlinesTest, AnEvaluationGoesOnAsLongAsBlocksCome) {
  EXPECT_FALSE(deadlines_.EvaluationMissed(now_ + seconds(19), now_ - seconds(100)));
  EXPECT_EQ(deadlines_.EvaluationMissed(now_ + seconds(21), now_), 20);
  EXPECT_FALSE(deadlines_.EvaluationMissed(now_ + seconds(29), now_ + seconds(10)));
}

TEST_F(DeadlinesTest, TimeInWhichThisProcessDidNotRunIsForgiven) {
  Deadlines stopped{Limits(), now_};
  stopped.Extend(seconds(100));  // never into the future
  EXPECT_EQ(stopped.JoinMissed(Deadlines::Clock::now() + seconds(61)), 60);
  EXPECT_LE(stopped.waited(Deadlines::Clock::now()), 0.5);
}

}  // namespace
}  // namespace muster
