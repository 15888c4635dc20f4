// When a lost server is restarted, and when restarts end.
#include "cli/job/restarts.h"

#include <gmock/gmock-matchers.h>
#include <google/protobuf/text_format.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "cli/job/job_processes.h"
#include "cli/job/run_dir.h"
#include "common/base/records.h"
#include "common/events/event_log.h"
#include "tests/checkpoint/some_run.h"
#include "tests/data/temp_dir.h"

namespace muster {
namespace {

using ::testing::HasSubstr;

TEST(LossArgumentTest, IsWhatTheServerReads) {
  EXPECT_EQ(LossArgument({.cause = "signal 9", .step = 120, .at = 4711.25}),
            "120,4711.250,signal 9");
  EXPECT_EQ(LossArgument({.cause = "silent"}), "-1,0.000,silent");
}

class RestartsTest : public ::testing::Test {
 protected:
  RestartsTest() { config_.mutable_run()->set_max_restarts(5); }
  void Checkpoint(int64_t generation, int64_t step) {
    CheckpointToWrite what = some_.At({generation, step});
    what.run_dir = run_.path();
    WriteCheckpoint(what, some_.image());
  }
  void Damage(int64_t generation, int64_t step) {
    const std::string file = CheckpointFolder(run_.path(), {generation, step}) + "/" + kTensorFile;
    std::fstream(file, std::ios::in | std::ios::out).seekp(-1, std::ios::end).put('x');
  }

  testing::SomeRun some_;
  const testing::TempDir dir_;
  RunDir run_ = RunDir::Open(dir_ / "run");
  config::Config config_;
  Restarts restarts_{config_, run_, false};
};

TEST_F(RestartsTest, AsOftenAsWanted) {
  for (int i = 1; i <= 5; ++i) {
    Checkpoint(1, i);
    EXPECT_EQ(restarts_.WhyNot(), "");
    EXPECT_EQ(restarts_.count(), static_cast<uint32_t>(i));
    EXPECT_EQ(restarts_.from_step(), i);
  }
  Checkpoint(1, 9);
  EXPECT_EQ(restarts_.WhyNot(), "it has already been restarted 5 times (run.max_restarts)");
}

TEST_F(RestartsTest, NotInACircle) {
  Checkpoint(1, 100);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(restarts_.WhyNot(), "");
  // A later server's checkpoint of the same step is no progress.
  Checkpoint(2, 100);
  EXPECT_THAT(restarts_.WhyNot(),
              HasSubstr("the last 3 starts did not get from step 100 to another checkpoint"));
  Checkpoint(2, 101);
  EXPECT_EQ(restarts_.WhyNot(), "");
}

// The server resumes from an older one, and its next checkpoints are of earlier steps than the
// damaged one.
TEST_F(RestartsTest, ADamagedCheckpointDoesNotCount) {
  Checkpoint(1, 100);
  Checkpoint(1, 200);
  Damage(1, 200);
  EXPECT_EQ(restarts_.WhyNot(), "");
  EXPECT_EQ(restarts_.from_step(), 100);
  for (int64_t step = 101; step <= 103; ++step) {
    Checkpoint(2, step);
    EXPECT_EQ(restarts_.WhyNot(), "");
    EXPECT_EQ(restarts_.from_step(), step);
  }
  EXPECT_EQ(restarts_.count(), 4u);
}

TEST_F(RestartsTest, NotIfAllCheckpointsAreDamaged) {
  Checkpoint(1, 100);
  Damage(1, 100);
  std::filesystem::remove(dir_ / "run/run_id");
  EXPECT_THAT(restarts_.WhyNot(), HasSubstr(std::string("step-00000100-g1/") + kTensorFile));
}

TEST_F(RestartsTest, FromTheBeginningBeforeTheFirstCheckpoint) {
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(restarts_.WhyNot(), "");
    EXPECT_EQ(restarts_.from_step(), -1);
  }
  EXPECT_THAT(restarts_.WhyNot(), HasSubstr("the last 3 starts did not reach a first checkpoint"));
  Checkpoint(1, 100);
  EXPECT_EQ(restarts_.WhyNot(), "");
  EXPECT_EQ(restarts_.from_step(), 100);
}

// The checkpoints were removed or their file system is not mounted. A restart would lose all work.
TEST_F(RestartsTest, NotFromTheBeginningWhereCheckpointsHaveBeen) {
  Checkpoint(1, 100);
  EXPECT_EQ(restarts_.WhyNot(), "");
  std::filesystem::remove_all(dir_ / "run/checkpoints");
  EXPECT_THAT(restarts_.WhyNot(), HasSubstr("its checkpoints are gone from"));
  Restarts resumed(config_, run_, true);
  EXPECT_THAT(resumed.WhyNot(), HasSubstr("its checkpoints are gone"));
  std::filesystem::remove(dir_ / "run/run_id");
  Restarts another(config_, run_, false);
  EXPECT_EQ(another.WhyNot(), "");
  std::ofstream(dir_ / "run/run_id") << std::string(32, 'a');
  EXPECT_THAT(another.WhyNot(), HasSubstr("its checkpoints are gone"));
}

// The files are removed so that the next server can start, but the logs remain.
TEST_F(RestartsTest, OfAnAttemptTheLogsStay) {
  std::filesystem::create_directories(dir_ / "run/checkpoints/step-00000000-g1.partial");
  for (const char* name : {"metrics.jsonl", "server.log", "worker-0.log", "config.txtpb",
                           "model.safetensors", "checkpoints/run_id"}) {
    std::ofstream(dir_ / (std::string("run/") + name)) << name;
  }
  run_.ForgetAttempt();
  run_.ForgetAttempt();  // with nothing to remove
  std::set<std::string> left;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(dir_ / "run")) {
    if (!entry.is_directory()) left.insert(entry.path().filename());
  }
  EXPECT_EQ(left, (std::set<std::string>{".launcher.lock", "server.log", "worker-0.log",
                                         "config.txtpb", "model.safetensors"}));
}

// Other files stay in place, as does a link to another disk.
TEST_F(RestartsTest, PutsAsideWhatARunWrites) {
  const auto write = [&](const std::string& name) {
    std::ofstream(dir_ / ("run/" + name)) << name;
  };
  const std::vector<std::string> written{
      "config.txtpb", "metrics.jsonl", "run.events",        "run.events.damaged",
      "server.log",   "worker-0.log",  "model.safetensors", "events.out.tfevents.1.host.muster"};
  const std::vector<std::string> kept{"thesis.tex", "init.safetensors", ".launcher.lock",
                                      "best.safetensors"};
  for (const std::string& name : written) write(name);
  for (const std::string& name : kept) write(name);
  std::filesystem::create_directories(dir_ / "disk");
  std::filesystem::create_directory_symlink(dir_ / "disk", dir_ / "run/checkpoints");
  write("checkpoints/run_id");
  std::filesystem::create_symlink("nowhere", dir_ / "run/attempt-1");
  const std::string input = dir_ / "run/best.safetensors";  // the run's initial weights
  EXPECT_EQ(PutAside(run_, input), "attempt-2");
  const auto exists = [&](const std::string& name) {
    return std::filesystem::exists(dir_ / ("run/" + name));
  };
  for (const std::string& name : written) {
    EXPECT_TRUE(exists("attempt-2/" + name)) << name;
    EXPECT_FALSE(exists(name)) << name;
  }
  for (const std::string& name : kept) EXPECT_TRUE(exists(name)) << name;
  EXPECT_TRUE(std::filesystem::is_symlink(dir_ / "run/checkpoints"));
  EXPECT_FALSE(exists("checkpoints/run_id")) << "the next attempt has another id";
  write("metrics.jsonl");
  EXPECT_EQ(PutAside(run_, input), "attempt-3");
  EXPECT_TRUE(exists("attempt-3/metrics.jsonl"));
  EXPECT_TRUE(exists("attempt-2/metrics.jsonl"));
}

TEST_F(RestartsTest, NotWithoutCheckpointsOrAWish) {
  config_.mutable_checkpoint()->set_keep_last(0);
  EXPECT_EQ(restarts_.WhyNot(),
            "there is no checkpoint to resume from, because checkpoint.keep_last is 0");
  config_.mutable_run()->set_max_restarts(0);
  Checkpoint(1, 100);
  EXPECT_EQ(restarts_.WhyNot(), "run.max_restarts is 0");
}

// Whether the server of a resumed run was lost before, judged by its last line.
class LostBeforeTest : public ::testing::Test {
 protected:
  std::optional<ServerLoss> With(const std::string& status) {
    const std::ofstream metrics(dir_.path() / "metrics.jsonl");
    events::Status page;
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(status, &page));
    std::ofstream(dir_.path() / kEventLog) << FrameRecord(page.SerializeAsString());
    return LostBefore(dir_.path());
  }
  testing::TempDir dir_;
};

constexpr const char* kGone = R"(server { host: "elsewhere" pid: 1 } unix_time: 1000 )";

TEST_F(LostBeforeTest, OneThatIsGoneAndSaidNothingOfAnEnd) {
  const std::chrono::duration<double> now = std::chrono::steady_clock::now().time_since_epoch();
  const auto loss = With(std::string(kGone) + R"(state: "training" progress { at { step: 12 } })");
  ASSERT_TRUE(loss.has_value());
  EXPECT_EQ(loss->step, 12);
  EXPECT_EQ(loss->cause, "ended without a word");
  EXPECT_LT(loss->at, now.count());
  const auto early = With(std::string(kGone) + R"(state: "gathering")");
  ASSERT_TRUE(early.has_value());
  EXPECT_EQ(early->step, std::nullopt);
}

TEST_F(LostBeforeTest, NotOneThatSaidSoOrIsThere) {
  EXPECT_EQ(LostBefore(dir_.path()), std::nullopt);
  for (const std::string& status :
       {std::string(kGone) + R"(state: "interrupted")",
        std::string(R"(server { host: "elsewhere" } unix_time: 1e12 state: "training")"),
        std::string()}) {
    EXPECT_EQ(With(status), std::nullopt) << status;
  }
}

}  // namespace
}  // namespace muster
