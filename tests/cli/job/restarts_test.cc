// When a lost server is started again, and when that ends.
#include "cli/job/restarts.h"

#include <gmock/gmock-matchers.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "cli/job/put_aside.h"
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
  Restarts restarts_{config_, run_, false};
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

// Somebody has taken them away, or what they lie on is not mounted: all would be done again.
TEST_F(RestartsTest, NotFromTheBeginningWhereCheckpointsHaveBeen) {
  Checkpoint("step-00000100-g1");
  EXPECT_EQ(restarts_.WhyNot(), "");
  std::filesystem::remove_all(dir_ / "run/checkpoints");
  EXPECT_THAT(restarts_.WhyNot(), HasSubstr("its checkpoints are gone: expected some in"));
  Restarts resumed(config_, run_, true);
  EXPECT_THAT(resumed.WhyNot(), HasSubstr("its checkpoints are gone"));
  Restarts another(config_, run_, false);
  EXPECT_EQ(another.WhyNot(), "");
  std::ofstream(dir_ / "run/run_id") << std::string(32, 'a');
  EXPECT_THAT(another.WhyNot(), HasSubstr("its checkpoints are gone"));
}

// What is not the attempt's stays where it is, a link to another disk too, and all of it does where
// something cannot be moved.
TEST_F(RestartsTest, PutsAsideWhatARunWrites) {
  const auto write = [&](const std::string& name) {
    std::ofstream(dir_ / ("run/" + name)) << name;
  };
  const std::vector<std::string> written{"metrics.jsonl", "server.log", "worker-0.log",
                                         "model.safetensors", "events.out.tfevents.1.host.muster"};
  const std::vector<std::string> kept{"config.txtpb", "thesis.tex", "init.safetensors",
                                      ".launcher.lock", "best.safetensors"};
  for (const std::string& name : written) write(name);
  for (const std::string& name : kept) write(name);
  std::filesystem::create_directories(dir_ / "disk");
  std::filesystem::create_directory_symlink(dir_ / "disk", dir_ / "run/checkpoints");
  write("checkpoints/run_id");
  std::filesystem::create_symlink("nowhere", dir_ / "run/attempt-1");
  const std::string input = dir_ / "run/best.safetensors";  // what the run begins with
  EXPECT_EQ(PutAside(run_, Aside::kAttempt, input), "attempt-2");
  const auto exists = [&](const std::string& name) {
    return std::filesystem::exists(dir_ / ("run/" + name));
  };
  for (const std::string& name : written) {
    EXPECT_TRUE(exists("attempt-2/" + name)) << name;
    EXPECT_FALSE(exists(name)) << name;
  }
  for (const std::string& name : kept) EXPECT_TRUE(exists(name)) << name;
  EXPECT_TRUE(std::filesystem::is_symlink(dir_ / "run/checkpoints"));
  EXPECT_FALSE(exists("checkpoints/run_id")) << "the next one has another id";
  write("metrics.jsonl");
  EXPECT_EQ(PutAside(run_, Aside::kRun, input), "attempt-3");
  EXPECT_TRUE(exists("attempt-3/config.txtpb"));
  EXPECT_TRUE(exists("attempt-2/metrics.jsonl"));
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
