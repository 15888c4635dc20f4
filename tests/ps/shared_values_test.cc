// Named values: who computes, who waits, and what a checkpoint keeps.
#include "ps/run/shared_values.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace muster::testing {
namespace {

using std::chrono::seconds;

class Values : public ::testing::Test {
 protected:
  // What this rank is answered at once and later, and what others are: "1 VALUE a; 2 COMPUTE ".
  std::string Ask(uint32_t rank, const std::string& key, int64_t step, bool may_compute) {
    wire::Ask ask;
    ask.set_key(key);
    ask.set_step(step);
    ask.set_may_compute(may_compute);
    EXPECT_EQ(values.OnAsk(rank, ask, now_step, now), "");
    return Answers();
  }
  std::string Tell(uint32_t rank, const std::string& key, const std::string& value) {
    wire::Tell tell;
    tell.set_key(key);
    tell.set_step(now_step);
    tell.set_value(value);
    why = values.OnTell(rank, tell);
    return Answers();
  }
  std::string Answers() { return std::exchange(answers, ""); }

  FirstFailure failure;
  std::string answers, why;
  SharedValues values{100, failure, [this](uint32_t rank, const wire::Answer& answer) {
                        answers += std::to_string(rank) + " " +
                                   wire::Answer::Kind_Name(answer.kind()) + " " + answer.value() +
                                   "; ";
                      }};
  SharedValues::Time now{seconds(1000)};
  int64_t now_step = 5;
};

TEST_F(Values, OneComputesAndTheOthersWait) {
  EXPECT_EQ(Ask(1, "a", 5, false), "");
  EXPECT_EQ(Ask(2, "a", 5, true), "2 COMPUTE ; ");
  EXPECT_EQ(Ask(0, "a", 5, true), "");
  EXPECT_EQ(Ask(2, "a", 5, true), "2 COMPUTE ; ") << "it asks once more";
  EXPECT_TRUE(values.computing());
  EXPECT_EQ(Tell(2, "a", "x"), "1 VALUE x; 0 VALUE x; ");
  EXPECT_FALSE(values.computing());
  EXPECT_EQ(Ask(3, "a", 2, true), "3 VALUE x; ");
  EXPECT_EQ(Tell(3, "a", "x"), "");
  EXPECT_FALSE(failure.is_set());
}

TEST_F(Values, TheProcessThatUpdatesTells) {
  wire::Tell tell;
  tell.set_key("a");
  tell.set_value("x");
  EXPECT_EQ(Ask(1, "a", 5, false), "");
  EXPECT_EQ(values.OnTell(std::nullopt, tell), "");
  EXPECT_EQ(Answers(), "1 VALUE x; ");
  tell.set_value("y");
  EXPECT_EQ(values.OnTell(std::nullopt, tell), "");
  ASSERT_TRUE(failure.is_set());
  EXPECT_EQ(failure.get()->code, ExitCode::kFailure);
}

TEST_F(Values, ALostRankLeavesItsClaimToTheNext) {
  EXPECT_EQ(Ask(0, "a", 5, true), "0 COMPUTE ; ");
  for (const uint32_t rank : {1u, 2u, 3u}) EXPECT_EQ(Ask(rank, "a", 5, rank > 1), "");
  values.Drop(0, now_step, now);
  EXPECT_EQ(Answers(), "2 COMPUTE ; ");
  values.Drop(2, now_step, now);
  EXPECT_EQ(Answers(), "3 COMPUTE ; ");
  values.Drop(3, now_step, now);
  EXPECT_EQ(Answers(), "");
  EXPECT_FALSE(values.computing());
  values.Drop(1, now_step, now);
  values.Put("a", 5, "x");
  EXPECT_EQ(Answers(), "") << "nobody waits any more";
}

TEST_F(Values, WhatNobodyComputesIsAbsentLater) {
  EXPECT_EQ(Ask(0, "a", 4, true), "0 ABSENT ; ");
  EXPECT_EQ(Ask(0, "a", 5, false), "");
  EXPECT_EQ(Ask(1, "b", 5, true), "1 COMPUTE ; ");
  EXPECT_EQ(Ask(2, "b", 5, true), "");
  now_step = 6;
  values.AtStep(now_step);
  EXPECT_EQ(Answers(), "0 ABSENT ; ");
  EXPECT_EQ(Ask(0, "b", 5, true), "") << "it waits for rank 1, too";
  EXPECT_EQ(Tell(1, "b", "x"), "2 VALUE x; 0 VALUE x; ");
}

TEST_F(Values, AComputationHasALimit) {
  (void)Ask(1, "a", 5, true);
  EXPECT_FALSE(values.Late(now + seconds(100)));
  const auto late = values.Late(now + seconds(101));
  ASSERT_TRUE(late);
  EXPECT_EQ(late->first, 1u);
  EXPECT_EQ(late->second, "it has not computed a within 100 s (deadlines.once_s)");
}

TEST_F(Values, AnotherValueEndsTheRun) {
  (void)Tell(0, "a", "1");
  (void)Tell(1, "a", "2");
  ASSERT_TRUE(failure.is_set());
  EXPECT_EQ(failure.get()->code, ExitCode::kFailure);
  EXPECT_EQ(failure.get()->what,
            "rank 1 computed another value for a at step 5: \"1\" before, \"2\" now");
}

TEST_F(Values, WhatGivesOtherBitsIsNamed) {
  (void)Tell(0, "bits:scatter", "atomics");
  (void)Tell(1, "bits:scatter", "in other words");
  (void)Tell(1, "bits:cumsum", "");
  EXPECT_FALSE(failure.is_set());
  EXPECT_EQ(values.OtherBits(), (std::vector<std::string>{"cumsum", "scatter"}));
  EXPECT_EQ(values.told().Find("bits:scatter")->bytes, "atomics");
}

TEST_F(Values, TooMuchEndsTheRun) {
  const std::string value(64 << 10, 'x');
  for (int i = 0; i < 1024 && !failure.is_set(); ++i) (void)Tell(0, std::to_string(i), value);
  ASSERT_TRUE(failure.is_set());
  EXPECT_EQ(failure.get()->code, ExitCode::kUsage);
}

TEST_F(Values, WhatDoesNotFitIsDropped) {
  EXPECT_EQ(Tell(0, "", "x"), "");
  EXPECT_EQ(why, "a value with a key of 0 bytes");
  (void)Tell(0, std::string(257, 'k'), "x");
  EXPECT_EQ(why, "a value with a key of 257 bytes");
  (void)Tell(0, "a", std::string((64 << 10) + 1, 'x'));
  EXPECT_EQ(why, "a value of 65537 bytes");
}

TEST_F(Values, ACheckpointKeepsThem) {
  (void)Tell(0, "a", std::string("\0\xff", 2));
  (void)Tell(0, SharedValues::kStop, "enough");
  (void)Tell(0, "length:5", "30");
  now_step = 20;
  (void)Tell(0, "length:20", "60");
  checkpoint::State state, again;
  values.Keep(state);
  FirstFailure none;
  SharedValues restored(1, none, {});
  restored.Restore(state);
  EXPECT_EQ(restored.told().Find("a")->bytes, std::string("\0\xff", 2));
  EXPECT_EQ(restored.told().Find("a")->step, 5);
  EXPECT_FALSE(restored.told().Find(SharedValues::kStop)) << "the program tells it once more";
  EXPECT_EQ(restored.Length(), "60");
  restored.Keep(again);
  EXPECT_EQ(again.SerializeAsString(), state.SerializeAsString());
}

}  // namespace
}  // namespace muster::testing
