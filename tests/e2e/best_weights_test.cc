// The weights of a run outlive a disk that is full, a server that is killed while it writes them,
// and, where nothing has them any more, that is said.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>
#include <sys/mount.h>

#include <fstream>

#include "tests/e2e/real_job.h"
#include "tests/e2e/small_disk.h"

namespace muster::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// With a rate of 0 no evaluation is better than the first one, at step 7 of 24.
const std::vector<std::string> kFirstIsBest{"run.epochs=4", "evaluation.every_epochs=0",
                                            "evaluation.every_steps=7", "learning_rate.base=0",
                                            "checkpoint.keep_last=1"};

class BestWeights : public RealJob {};

class FullDisk : public SmallDisk {
 protected:
  // The weights alone are larger than the disk; all else has room.
  static std::vector<std::string> Large() {
    std::vector<std::string> settings = kFirstIsBest;
    for (const char* const more : {"model.layer[hidden].dense.units=400", "optimizer.ema_decay=0.9",
                                   "evaluation.use_ema=true", "tensorboard.enabled=false"}) {
      settings.emplace_back(more);
    }
    return settings;
  }
};

TEST_F(FullDisk, WithSaveToEverythingIsThereAndComesBack) {
  const Outcome whole = Launch(Large());
  ASSERT_EQ(whole.exit_code, 0) << whole.log;
  std::vector<std::string> words =
      LaunchWords(Path("tiny.txtpb"), Path("data"), Path("small/run"), Large());
  words.insert(words.end(), {"--save-to", Path("other")});
  Process process(words, Path("run.log"));
  EXPECT_EQ(process.Wait(60), 0) << process.Log();
  EXPECT_THAT(process.Log(),
              AllOf(HasSubstr("Warning: no checkpoint of step 0: "), HasSubstr("No space left"),
                    HasSubstr(Path("other") / "model.safetensors"),
                    HasSubstr(Path("other") / "model-raw.safetensors"),
                    HasSubstr(Path("other") / "best.safetensors"),
                    Not(HasSubstr("not everything of the run could be kept"))));
  for (const char* const name :
       {"model.safetensors", "model-raw.safetensors", "best.safetensors"}) {
    EXPECT_FALSE(fs::exists(Path("small/run") / name));
    for (const char* const key : {"weights_hash", "step"}) {
      EXPECT_EQ(MetadataIn(Path("other") / name)[key], MetadataIn(Path("run0") / name)[key])
          << name;
    }
  }
  EXPECT_EQ(MetadataIn(Path("other/best.safetensors"))["step"], "7");

  // There is room again, and the checkpoint of the best weights has gone long ago.
  ASSERT_TRUE(Mount("size=64m", MS_REMOUNT));
  const Outcome rest = GoOn("small/run", {"--epochs", "5"});
  EXPECT_EQ(rest.exit_code, 0) << rest.log;
  EXPECT_EQ(rest.metrics.back()["best_step"], 7);
  for (const char* const key : {"weights_hash", "step", "test_accuracy", "test_loss"}) {
    EXPECT_EQ(MetadataIn(Path("small/run/best.safetensors"))[key],
              MetadataIn(Path("other/best.safetensors"))[key]);
  }
  EXPECT_EQ(MetadataIn(Path("small/run/model.safetensors"))["step"], "30");
}

// It has come there since the run began.
TEST_F(FullDisk, WhatIsThereOfAnotherRunIsNotReplaced) {
  ASSERT_EQ(Launch({"run.steps=1"}).exit_code, 0);
  std::vector<std::string> settings = Large();
  // Long enough for that, and then it ends by itself.
  settings[0] = "run.epochs=100000";
  settings[2] = "evaluation.every_steps=2000";
  settings.emplace_back("evaluation.stop_at_accuracy=0.0001");
  std::vector<std::string> words =
      LaunchWords(Path("tiny.txtpb"), Path("data"), Path("small/run"), settings);
  words.insert(words.end(), {"--save-to", Path("shared")});
  const std::string before = MetadataIn(Path("run0/model.safetensors"))["weights_hash"];
  Process process(words, Path("run.log"));
  ASSERT_TRUE(Eventually(30, [&] {
    return !Slurp(Path("small/run/metrics.jsonl")).empty() && fs::exists(Path("shared"));
  }));
  fs::copy(Path("run0"), Path("shared"), fs::copy_options::recursive);
  EXPECT_EQ(process.Wait(60), 1);
  EXPECT_THAT(process.Log(), AllOf(HasSubstr("not everything of the run could be kept"),
                                   HasSubstr("the checkpoints of another run are there"),
                                   HasSubstr("choose another directory with --save-to")));
  EXPECT_EQ(MetadataIn(Path("shared/model.safetensors"))["weights_hash"], before);
}

// No checkpoint tells of best weights that are not on the disk.
TEST_F(BestWeights, AServerThatIsKilledWhileItWritesThemLosesNone) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's runtime must come first";
#endif
  std::vector<std::string> settings = kFirstIsBest;
  settings.insert(settings.end(), {"checkpoint.every_steps=5", "run.max_restarts=0"});
  Process process(LaunchWords(Path("tiny.txtpb"), Path("data"), Path("run"), settings),
                  Path("run.log"),
                  {.environment = {{"LD_PRELOAD", MUSTER_FAULTS}, {"MUSTER_FAULT", "best"}}});
  EXPECT_EQ(process.Wait(60), 6) << process.Log();
  EXPECT_FALSE(fs::exists(Path("run/best.safetensors")));
  const Outcome rest = GoOn("run");
  EXPECT_EQ(rest.exit_code, 0) << rest.log;
  EXPECT_EQ(MetadataIn(Path("run/best.safetensors"))["step"], "7");
}

TEST_F(BestWeights, ThatAreNowhereAreSpokenOf) {
  ASSERT_EQ(Launch(kFirstIsBest).exit_code, 0);
  fs::remove(Path("run0/best.safetensors"));
  const Outcome lost = GoOn("run0", {"--epochs", "5"});
  EXPECT_EQ(lost.exit_code, 1) << lost.log;
  EXPECT_THAT(lost.log,
              AllOf(HasSubstr("Warning: "), HasSubstr("Completed: "),
                    HasSubstr("best.safetensors: the weights of the best evaluation, at step 7"),
                    HasSubstr("/config.txtpb"), Not(HasSubstr("when there is room again"))));
}

}  // namespace
}  // namespace muster::testing
