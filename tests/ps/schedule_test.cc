// Learning rate schedules at their boundaries and against closed forms.
#include "ps/update/schedule.h"

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "common/base/error.h"
#include "common/checkpoint/resumable_config.h"
#include "common/config/update_settings.h"

namespace muster {
namespace schedule_test {

config::LearningRate Parse(const std::string& text) {
  config::LearningRate rate;
  MUSTER_CHECK(google::protobuf::TextFormat::ParseFromString(text, &rate));
  return rate;
}

// The schedule of a run of 1,000 samples.
LearningRateSchedule Make(const std::string& text, uint32_t workers = 1) {
  return LearningRateSchedule(Parse(text), workers, 1000);
}

TEST(Schedule, Constant) {
  const auto rate = Make("base: 0.5");
  for (const int64_t s : {0, 1, 1000, 1000000}) EXPECT_EQ(rate.At(s), 0.5);
}

TEST(Schedule, StepByIntervals) {
  const auto rate = Make("type: STEP base: 0.5 factor: 0.1 interval_samples: 100");
  EXPECT_EQ(rate.At(0), 0.5);
  EXPECT_EQ(rate.At(99), 0.5);
  EXPECT_DOUBLE_EQ(rate.At(100), 0.05);
  EXPECT_DOUBLE_EQ(rate.At(250), 0.005);
  EXPECT_DOUBLE_EQ(rate.At(1000), 0.5e-10);
}

TEST(Schedule, StepByMilestones) {
  const auto rate =
      Make("type: STEP base: 8 factor: 0.5 milestone_samples: [100, 150, 900] warmup_samples: 20");
  EXPECT_EQ(rate.At(0), 0);
  EXPECT_EQ(rate.At(10), 4);
  EXPECT_EQ(rate.At(20), 8);
  EXPECT_EQ(rate.At(99), 8);
  EXPECT_EQ(rate.At(100), 4);  // positions are relative to the run, not to the end of the warm-up
  EXPECT_EQ(rate.At(149), 4);
  EXPECT_EQ(rate.At(150), 2);
  EXPECT_EQ(rate.At(900), 1);
  EXPECT_EQ(rate.At(1 << 30), 1);
}

TEST(Schedule, Exponential) {
  const auto rate =
      Make("type: EXPONENTIAL base: 0.5 factor: 0.1 interval_samples: 100 warmup_samples: 50");
  EXPECT_DOUBLE_EQ(rate.At(50), 0.5);
  EXPECT_DOUBLE_EQ(rate.At(100), 0.5 * std::sqrt(0.1));
  EXPECT_DOUBLE_EQ(rate.At(150), 0.05);
}

TEST(Schedule, Plateau) {
  const auto rate = Make("type: PLATEAU base: 0.5 factor: 0.1 end: 0.001 warmup_samples: 100");
  EXPECT_EQ(rate.At(0), 0);
  EXPECT_EQ(rate.At(50), 0.25);
  EXPECT_EQ(rate.At(100), 0.5);
  EXPECT_EQ(rate.At(1 << 30), 0.5);
  EXPECT_DOUBLE_EQ(rate.At(100, 1), 0.05);
  EXPECT_DOUBLE_EQ(rate.At(99999, 2), 0.005);
  EXPECT_EQ(rate.At(100, 3), 0.001) << "never below `end`";
  EXPECT_EQ(rate.At(100, 1000000), 0.001);
  EXPECT_DOUBLE_EQ(rate.At(50, 1), 0.025) << "the warm-up leads to the current rate";
  // A rate that was scaled below `end` is not raised.
  const auto scaled = Make("type: PLATEAU base: 0.5 end: 0.2 scaling: LINEAR base_workers: 5");
  EXPECT_EQ(scaled.At(0), 0.1);
  EXPECT_EQ(scaled.At(0, 3), 0.1);
}

TEST(Schedule, Polynomial) {
  const auto linear = Make("type: POLYNOMIAL base: 1 end: 0.2");
  EXPECT_EQ(linear.At(0), 1);
  EXPECT_DOUBLE_EQ(linear.At(500), 0.6);
  EXPECT_EQ(linear.At(1000), 0.2);
  EXPECT_EQ(linear.At(5000), 0.2);
  const auto square = Make("type: POLYNOMIAL base: 1 power: 2 total_samples: 100");
  EXPECT_DOUBLE_EQ(square.At(50), 0.25);
  EXPECT_EQ(square.At(100), 0);
  EXPECT_EQ(square.At(999), 0);
}

TEST(Schedule, CosineAfterWarmup) {
  const auto rate = Make("type: COSINE base: 1 end: 0.1 warmup_samples: 200 warmup_start: 0.5");
  EXPECT_EQ(rate.At(0), 0.5);
  EXPECT_DOUBLE_EQ(rate.At(100), 0.75);
  EXPECT_EQ(rate.At(200), 1);
  EXPECT_DOUBLE_EQ(rate.At(400), 0.1 + 0.9 * (1 + std::cos(std::numbers::pi / 4)) / 2);
  EXPECT_DOUBLE_EQ(rate.At(600), 0.55);
  EXPECT_EQ(rate.At(1000), 0.1);
  EXPECT_EQ(rate.At(2000), 0.1);
}

// A run that is not longer than its warm-up.
TEST(Schedule, ARunThatIsAllWarmup) {
  for (const std::string type : {"POLYNOMIAL", "COSINE"}) {
    for (const int64_t warmup : {1000, 1001, 4000}) {
      const auto rate =
          Make("base: 1 end: 0.25 type: " + type + " warmup_samples: " + std::to_string(warmup));
      EXPECT_EQ(rate.At(0), 0);
      EXPECT_DOUBLE_EQ(rate.At(500), 500.0 / static_cast<double>(warmup));
      EXPECT_EQ(rate.At(warmup), 0.25);
      EXPECT_EQ(rate.At(warmup + 1), 0.25);
    }
  }
}

// Otherwise a run that is resumed with another length would change its rate without a word.
TEST(Schedule, WhatFollowsTheLengthIsKnown) {
  using Rate = config::LearningRate;
  for (int type = 1; type <= Rate::Type_MAX; ++type) {
    config::LearningRate rate = Parse("base: 1 interval_samples: 100 plateau_patience: 1");
    rate.set_type(Rate::Type(type));
    const auto follows = [&] {
      for (int64_t samples = 0; samples < 2000; samples += 100) {
        for (const int64_t reductions : {0, 1}) {
          if (LearningRateSchedule(rate, 1, 1000).At(samples, reductions) !=
              LearningRateSchedule(rate, 1, 2000).At(samples, reductions)) {
            return true;
          }
        }
      }
      return false;
    };
    EXPECT_EQ(RateFollowsLength(rate), follows()) << Rate::Type_Name(Rate::Type(type));
    rate.set_total_samples(500);
    EXPECT_FALSE(RateFollowsLength(rate) || follows()) << Rate::Type_Name(Rate::Type(type));
  }
}

TEST(Schedule, OneCycle) {
  const auto rate = Make("type: ONE_CYCLE base: 1 end: 0.01 peak_fraction: 0.25 start_divisor: 10");
  EXPECT_DOUBLE_EQ(rate.At(0), 0.1);
  EXPECT_DOUBLE_EQ(rate.At(125), 0.55);
  EXPECT_DOUBLE_EQ(rate.At(250), 1);
  EXPECT_DOUBLE_EQ(rate.At(625), 0.505);
  EXPECT_DOUBLE_EQ(rate.At(500), 0.01 + 0.99 * (1 + std::cos(std::numbers::pi / 3)) / 2);
  EXPECT_EQ(rate.At(1000), 0.01);
  EXPECT_EQ(rate.At(1500), 0.01);
}

TEST(Schedule, BaseFollowsTheWorkersOnlyWhenAsked) {
  EXPECT_EQ(Make("base: 0.1", 8).base(), 0.1);
  EXPECT_DOUBLE_EQ(Make("base: 0.1 scaling: LINEAR", 8).base(), 0.8);
  EXPECT_DOUBLE_EQ(Make("base: 0.1 scaling: LINEAR base_workers: 4", 8).At(0), 0.2);
  EXPECT_DOUBLE_EQ(Make("base: 0.1 scaling: LINEAR base_workers: 4", 2).At(0), 0.05);
  EXPECT_DOUBLE_EQ(Make("base: 0.1 scaling: SQRT base_workers: 2", 8).base(), 0.2);
  // `end` is not scaled.
  const auto rate = Make("type: POLYNOMIAL base: 1 end: 0.5 scaling: LINEAR", 4);
  EXPECT_DOUBLE_EQ(rate.At(500), 2.25);
  EXPECT_EQ(rate.At(1000), 0.5);
}

}  // namespace schedule_test
}  // namespace muster
