// When a lost server is started again, and when that ends.
#include "launch/job/restarts.h"

#include <gmock/gmock-matchers.h>

#include <csignal>
#include <filesystem>

#include "tests/data/temp_dir.h"

namespace muster {
namespace {

using ::testing::HasSubstr;

EndedProcess Killed(int rank, int signal, bool asked = false) {
  return {.rank = rank, .end = {.by_signal = true, .value = signal, .asked = asked}};
}
EndedProcess Exited(int rank, int code) { return {.rank = rank, .end = {.value = code}}; }

TEST(SignalOfServerTest, OnlyOneThatNobodySent) {
  EXPECT_EQ(SignalOfServer({Killed(-1, SIGKILL)}), SIGKILL);
  EXPECT_EQ(SignalOfServer({Exited(0, 7), Killed(1, SIGTERM, true), Killed(-1, SIGABRT)}), SIGABRT);
  EXPECT_EQ(SignalOfServer({Killed(-1, SIGKILL, true)}), std::nullopt);
  EXPECT_EQ(SignalOfServer({Killed(0, SIGKILL), Exited(-1, 7)}), std::nullopt);
  EXPECT_EQ(SignalOfServer({}), std::nullopt);
}

TEST(RestartsTextTest, SaysWhereFromAndHowOften) {
  events::Summary summary;
  EXPECT_EQ(RestartsText(summary), "");
  const auto add = [&](int64_t from) {
    events::Restarted& restarted = *summary.add_restarts();
    restarted.set_cause("signal 9");
    restarted.set_from_step(from);
    return &restarted;
  };
  add(100)->set_lost_at_step(1120);
  EXPECT_EQ(RestartsText(summary),
            "the server was lost at step 1,120 (signal 9) and started again from step 100, 1 time");
  add(200);
  EXPECT_EQ(
      RestartsText(summary),
      "the server was lost and started again 2 times: at step 1,120 (signal 9) from step 100, "
      "before its first step (signal 9) from step 200");
  add(300);
  add(400);
  EXPECT_THAT(RestartsText(summary), HasSubstr("4 times: … before its first step (signal 9) from "
                                               "step 200, "));
}

TEST(LossArgumentTest, IsWhatTheServerReads) {
  EXPECT_EQ(LossArgument({.cause = "signal 9", .step = 120, .at = 4711.25}),
            "120,4711.250,signal 9");
  EXPECT_EQ(LossArgument({.cause = "silent"}), "-1,0.000,silent");
}

class RestartsTest : public ::testing::Test {
 protected:
  RestartsTest() { config_.mutable_run()->set_max_restarts(5); }
  void Checkpoint(const std::string& name) {
    std::filesystem::create_directories(dir_ / ("run/checkpoints/" + name));
  }

  const testing::TempDir dir_;
  RunDir run_ = RunDir::Open(dir_ / "run");
  config::Config config_;
  Restarts restarts_{config_, run_};
};

TEST_F(RestartsTest, AsOftenAsWanted) {
  for (int i = 1; i <= 5; ++i) {
    Checkpoint("step-0000000" + std::to_string(i) + "-g1");
    EXPECT_EQ(restarts_.WhyNot(), "");
    EXPECT_EQ(restarts_.count(), static_cast<uint32_t>(i));
    EXPECT_EQ(restarts_.from_step(), i);
  }
  Checkpoint("step-00000009-g1");
  EXPECT_EQ(restarts_.WhyNot(), "it has been started again 5 times already (run.max_restarts)");
}

TEST_F(RestartsTest, NotInACircle) {
  Checkpoint("step-00000100-g1");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(restarts_.WhyNot(), "");
  // Of the same step by a later server: no progress.
  Checkpoint("step-00000100-g2");
  EXPECT_THAT(restarts_.WhyNot(),
              HasSubstr("the last 3 starts did not get from step 100 to another checkpoint"));
  Checkpoint("step-00000101-g2");
  EXPECT_EQ(restarts_.WhyNot(), "");
}

TEST_F(RestartsTest, FromTheBeginningBeforeTheFirstCheckpoint) {
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(restarts_.WhyNot(), "");
    EXPECT_EQ(restarts_.from_step(), -1);
  }
  EXPECT_THAT(restarts_.WhyNot(), HasSubstr("the last 3 starts did not get to a first checkpoint"));
  Checkpoint("step-00000100-g1");
  EXPECT_EQ(restarts_.WhyNot(), "");
  EXPECT_EQ(restarts_.from_step(), 100);
}

TEST_F(RestartsTest, NotWithoutCheckpointsOrAWish) {
  config_.mutable_checkpoint()->set_keep_last(0);
  EXPECT_EQ(restarts_.WhyNot(),
            "there is no checkpoint to go on from, since checkpoint.keep_last is 0");
  config_.mutable_run()->set_max_restarts(0);
  Checkpoint("step-00000100-g1");
  EXPECT_EQ(restarts_.WhyNot(), "run.max_restarts is 0");
}

}  // namespace
}  // namespace muster
