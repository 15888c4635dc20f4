// `muster verify` repeats a run and compares the bits with its checkpoints. It reports the first
// difference.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>
#include <xxhash.h>

#include <csignal>
#include <cstring>
#include <fstream>

#include "common/checkpoint/checkpoint_reader.h"
#include "common/checkpoint/state_file.h"
#include "tests/e2e/real_job.h"

namespace muster::testing {
namespace verify_test {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

// All paths in a directory, with contents and modification times.
std::map<std::string, std::string> Everything(const fs::path& dir) {
  std::map<std::string, std::string> all;
  for (const auto& entry : fs::recursive_directory_iterator(dir)) {
    const auto written = std::to_string(entry.last_write_time().time_since_epoch().count());
    all[entry.path()] = written + (entry.is_regular_file() ? Slurp(entry.path()) : "");
  }
  return all;
}

class Verify : public RealJob {
 protected:
  Outcome Run(const std::string& run, const std::vector<std::string>& more = {}) {
    std::vector<std::string> words{"verify", Path(run)};
    words.insert(words.end(), more.begin(), more.end());
    return Muster(words);
  }
  // Trains epoch by epoch, stopping after each. The end of a run always has a checkpoint, while
  // others are skipped if the disk is busy.
  void TrainByEpoch(const std::string& run, std::vector<std::string> settings, int epochs) {
    settings.insert(settings.end(), {"checkpoint.every_epochs=0", "checkpoint.keep_last=100"});
    settings.emplace_back("run.epochs=1");
    ASSERT_EQ(Start(run, settings)->Wait(60), 0);
    for (int epoch = 2; epoch <= epochs; ++epoch) {
      ASSERT_EQ(GoOn(run, {"--epochs", std::to_string(epoch)}).exit_code, 0);
    }
  }
  // Changes the state of a checkpoint and updates its checksum.
  static void Change(const fs::path& folder, const std::function<void(checkpoint::State&)>& how) {
    const std::string file = folder / kStateFile;
    checkpoint::State state = ParseStateFile(file, Slurp(file));
    how(state);
    std::ofstream(file, std::ios::binary) << StateFileBytes(state);
  }
  // Flips a bit in three values of a tensor and updates the checksums.
  static void Turn(const fs::path& folder, const std::string& tensor) {
    const fs::path file = folder / kTensorFile;
    std::string bytes = Slurp(file);
    const SafetensorsReader reader(file);
    const SafetensorsHeader& header = reader.header();
    const StoredTensor& stored = *header.Find(tensor);
    char* const values = bytes.data() + header.data_begin + stored.begin;
    for (const size_t i : {0, 5, 7}) values[i * sizeof(float) + 2] ^= 1;
    Change(folder, [&](checkpoint::State& state) {
      for (auto& one : *state.mutable_tensors()->mutable_tensor()) {
        if (one.name() == tensor) one.set_xxh3(XXH3_64bits(values, stored.bytes()));
      }
    });
    std::ofstream(file, std::ios::binary) << bytes;
  }
};

const std::vector<std::string> kLong{
    "run.epochs=60",           "evaluation.every_steps=7",  "optimizer.ema_decay=0.9",
    "evaluation.use_ema=true", "checkpoint.every_steps=20", "checkpoint.keep_last=100"};

TEST_F(Verify, AResumedRunOnAnyNumberOfWorkers) {
  const auto process = Start("run", kLong);
  ASSERT_TRUE(Reaches("run", 20));
  KillAll("run", *process);
  ASSERT_EQ(GoOn("run", {"--workers", "3"}).exit_code, 0);
  const auto before = Everything(Path("run"));
  const std::string checkpoints = " (" + std::to_string(Checkpoints("run").size()) + " checkpoints";
  for (const std::string workers : {"1", "2", "3"}) {
    const Outcome same = Run("run", {"--workers", workers});
    EXPECT_EQ(same.exit_code, 0) << same.log;
    EXPECT_THAT(same.log,
                HasSubstr(" to 360: the same bits in 18 tensors on " + workers + " worker"));
    EXPECT_THAT(same.log, AllOf(HasSubstr("steps 0 to "), HasSubstr(checkpoints)));
  }
  const Outcome last = Succeeded(Run("run", {"--last", "--set", "cluster.transport=TCP"}));
  EXPECT_THAT(last.log,
              MatchesRegex("steps [0-9]+ to 360: the same bits in 18 tensors on 3 workers "
                           ".2 checkpoints.\n"));
  const auto json = nlohmann::json::parse(Succeeded(Run("run", {"--last", "--json"})).log);
  EXPECT_EQ(json["same"], true);
  EXPECT_EQ(json["to_step"], 360);
  EXPECT_EQ(json["checkpoints"].size(), 2u);
  EXPECT_FALSE(json.contains("difference"));
  EXPECT_EQ(Everything(Path("run")), before);
}

// The rate falls at steps 9, 15, … At 24 patience ends the run, until it is increased.
TEST_F(Verify, WhatEvaluationsDecidedIsDecidedAgain) {
  ASSERT_EQ(
      Launch({"run.epochs=10", "evaluation.every_steps=3", "evaluation.every_epochs=0",
              "learning_rate.type=PLATEAU", "learning_rate.base=1e-8", "learning_rate.factor=0.5",
              "learning_rate.plateau_patience=2", "evaluation.patience=7",
              "checkpoint.every_steps=4", "checkpoint.keep_last=100"})
          .exit_code,
      0);
  EXPECT_EQ(Metrics("run0").back()["step"], 24);
  EXPECT_THAT(Succeeded(Run("run0")).log, HasSubstr("steps 0 to 24: the same bits in 12 tensors "));
  ASSERT_EQ(GoOn("run0", {"--set", "evaluation.patience=9"}).exit_code, 0);
  const Outcome longer = Succeeded(Run("run0", {"--workers", "1"}));
  EXPECT_THAT(longer.log, HasSubstr("steps 0 to 30: the same bits in 12 tensors on 1 worker ("));
  // The same run with less patience ends earlier.
  const Outcome shorter = Run("run0", {"--set", "evaluation.patience=7"});
  EXPECT_EQ(shorter.exit_code, 1) << shorter.log;
  EXPECT_THAT(shorter.log, ContainsRegex("step 24: the replay ended before checkpoint "
                                         "step-000000(28|30)-g2.*: no better test accuracy than "));
}

TEST_F(Verify, TheFirstDifferenceIsNamed) {
  TrainByEpoch("run", {"optimizer.ema_decay=0.9"}, 4);
  const std::vector<fs::path> kept = Checkpoints("run");
  ASSERT_EQ(kept.size(), 5u);  // 0, 6, …, 24
  EXPECT_EQ(Succeeded(Run("run")).log,
            "steps 0 to 24: the same bits in 18 tensors on 2 workers (5 checkpoints)\n");
  Turn(kept[2], "optimizer_state_0.hidden/weights");
  Turn(kept[3], "average.conv/weights");
  const Outcome first = Run("run");
  EXPECT_EQ(first.exit_code, 1);
  EXPECT_THAT(first.log, MatchesRegex("step 12: differs from checkpoint step-00000012-g2-evaluated:"
                                      " optimizer_state_0.hidden/weights, 3 of [0-9,]+ values\n"));
  const Outcome json = Run("run", {"--json", "--workers", "1"});
  EXPECT_EQ(json.exit_code, 1);
  const auto result = nlohmann::json::parse(json.log);
  EXPECT_EQ(result["same"], false);
  EXPECT_EQ(result["from_step"], 0);
  EXPECT_EQ(result["to_step"], 6);
  EXPECT_THAT(result["difference"], HasSubstr("step-00000012-g2"));
  // Different initial bits lead to different final ones.
  EXPECT_THAT(Run("run", {"--last"}).log,
              HasSubstr("step 24: differs from checkpoint step-00000024-g4-evaluated: average."));
}

TEST_F(Verify, WhatElseACheckpointHoldsIsCompared) {
  ASSERT_EQ(Launch(kLong).exit_code, 0);
  const fs::path last = Checkpoints("run0").back();
  const std::string whole = Slurp(last / kStateFile);
  const auto differs = [&](const char* what, const std::function<void(checkpoint::State&)>& how) {
    Change(last, how);
    const Outcome outcome = Run("run0", {"--last"});
    EXPECT_EQ(outcome.exit_code, 1) << outcome.log;
    EXPECT_THAT(outcome.log,
                HasSubstr("step 360: differs from checkpoint step-00000360-g1-evaluated"
                          ": " +
                          std::string(what)));
    std::ofstream(last / kStateFile, std::ios::binary) << whole;
  };
  differs("359 updates before, 360 now", [](auto& state) { state.set_updates(359); });
  differs("2 skipped steps in a row before, 0 now",
          [](auto& state) { state.set_skipped_in_a_row(2); });
  differs(
      "the sums of samples and losses; possible cause: the workers computed with \"an abacus\" "
      "before and with \"",
      [](auto& state) {
        state.mutable_progress()->mutable_total()->set_loss(1);
        state.mutable_arithmetic()->set_worker(0, "an abacus");
      });
  differs("the decisions from evaluations",
          [](auto& state) { state.mutable_decisions()->set_accuracy(1); });
  EXPECT_EQ(Run("run0", {"--last"}).exit_code, 0);
}

TEST_F(Verify, WhatCannotBeVerifiedIsRefused) {
  ASSERT_EQ(Start("one", {"checkpoint.keep_last=1"})->Wait(60), 0);
  ExpectRefused({"verify", Path("one")}, ExitCode::kUsage,
                "expected checkpoints of at least two steps, got step-00000012-g1-evaluated; ");
  ExpectRefused({"verify", Path("one/checkpoints")}, ExitCode::kUsage,
                "checkpoints: expected a run directory");
  // By default the checkpoints of two steps are kept.
  ASSERT_EQ(Start("run", {})->Wait(60), 0);
  EXPECT_THAT(Succeeded(Run("run")).log,
              MatchesRegex("steps [06] to 12: the same bits in 12 tensors on 2 workers "
                           ".2 checkpoints.\n(steps 0 to 6 were not repeated: .*\n)?"));
  ExpectRefused({"verify", Path("run"), "--set", "run.seed=9"}, ExitCode::kUsage,
                "run.seed was 1 and is now 9: a resumed run must keep this setting");
  ExpectRefused({"verify", Path("run"), "--set", "run.epochs=1"}, ExitCode::kUsage,
                "expected a length of at least 12 steps");
  ExpectRefused({"verify", Path("run"), "--workers", "1000"}, ExitCode::kUsage,
                "--workers 1000: expected at most ");
  ExpectRefused({"verify", Path("run"), "--workers", "0x100"}, ExitCode::kUsage,
                "--workers 0x100: expected at most ");
  ExpectRefused({"verify", Path("run"), "--data", Path("nowhere")}, ExitCode::kData, "nowhere");
  const auto before = Everything(Path("run"));
  fs::resize_file(Checkpoints("run").front() / kTensorFile, 5000);
  ExpectRefused({"verify", Path("run")}, ExitCode::kData, "-g1/tensors.safetensors: ");
  EXPECT_EQ(Everything(Path("run")).size(), before.size());
}

// The run continues during the verification and removes older checkpoints.
TEST_F(Verify, ARunUnderWay) {
  const auto process =
      Start("run", {"run.epochs=100000", "checkpoint.every_steps=5", "checkpoint.keep_last=6"});
  ASSERT_TRUE(Eventually(30, [&] { return Checkpoints("run").size() > 3; })) << process->Log();
  for (int i = 0; i < 3; ++i) {
    const Outcome outcome = Run("run", {"--last"});
    if (outcome.exit_code == 0) {
      EXPECT_THAT(outcome.log, HasSubstr(": the same bits in 12 tensors on 2 workers"));
    } else {
      EXPECT_THAT(outcome.log, HasSubstr(" has been removed meanwhile"));
    }
  }
  EXPECT_EQ(process->EndBy(SIGINT, 20), 130) << process->Log();
  EXPECT_EQ(Succeeded(Run("run", {"--last", "--workers", "1"})).exit_code, 0);
}

TEST_F(Verify, ALostWorkerIsReplacedAndCtrlCLeavesNothing) {
  ASSERT_EQ(Launch({"run.epochs=300", "checkpoint.every_steps=1700", "checkpoint.keep_last=9",
                    "run.log_every_steps=100"})
                .exit_code,
            0);
  const auto before = Everything(Path("run0"));
  fs::create_directory(Path("tmp"));
  // The job that replays the run has its files in a folder there.
  const auto worker = [&] {
    for (const auto& entry : fs::directory_iterator(Path("tmp"))) {
      return Find("tmp/" + entry.path().filename().string(), 1);
    }
    return -1;
  };
  const std::vector<std::string> words{"muster", "verify", Path("run0")};
  const ProcessOptions options{.environment = {{"TMPDIR", Path("tmp")}}};
  for (const int signal : {SIGKILL, SIGINT}) {
    Process process(words, Path("verify.log"), options);
    pid_t pid = -1;
    ASSERT_TRUE(Eventually(30, [&] { return (pid = worker()) > 0; })) << process.Log();
    if (signal == SIGKILL) {
      ::kill(pid, SIGKILL);
      EXPECT_EQ(process.Wait(60), 0) << process.Log();
      EXPECT_TRUE(process.Says("steps 0 to 1,800: the same bits in 12 tensors on 2 workers"));
    } else {
      EXPECT_EQ(process.EndBy(SIGINT, 20), 130) << process.Log();
      EXPECT_THAT(process.Log(), HasSubstr("stopped by SIGINT; found no difference"));
    }
    EXPECT_TRUE(NothingLeft(10));
    EXPECT_TRUE(fs::is_empty(Path("tmp")));
  }
  EXPECT_EQ(Everything(Path("run0")), before);
}

}  // namespace verify_test
}  // namespace muster::testing
