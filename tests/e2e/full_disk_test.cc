// A disk that is full for a while, or until the end of the run. Checks the status, the report of
// missing files, and that `--resume` writes them with the same bits.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>
#include <sys/mount.h>

#include <csignal>

#include "tests/e2e/small_disk.h"

namespace muster::testing {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class FullDisk : public SmallDisk {
 protected:
  // The weights are larger than the disk, but everything else fits.
  static std::vector<std::string> Large() {
    return {"run.epochs=4", "model.layer[hidden].dense.units=800", "optimizer.ema_decay=0.9",
            "tensorboard.enabled=false"};
  }
  Outcome LaunchIn(const std::string& run, const std::vector<std::string>& settings,
                   const std::vector<std::string>& more = {}) {
    std::vector<std::string> words =
        LaunchWords(Path("tiny.txtpb"), Path("data"), Path(run), settings, more);
    words.erase(words.begin());
    return Muster(words, run);
  }
  // Starts a run that outlasts the test.
  std::unique_ptr<Process> Begin(const std::vector<std::string>& more = {}) {
    std::vector<std::string> settings{"run.steps=1000000", "evaluation.every_epochs=0",
                                      "run.log_every_steps=160"};  // of many epochs
    settings.insert(settings.end(), more.begin(), more.end());
    return std::make_unique<Process>(
        LaunchWords(Path("tiny.txtpb"), Path("data"), Path("small/run"), settings), Path("log"));
  }
};

TEST_F(FullDisk, ARunWithoutRoomComesToItsEndAndNamesWhatIsMissing) {
  const Outcome lost = LaunchIn("small/run", Large());
  EXPECT_EQ(lost.exit_code, 1);
  EXPECT_THAT(lost.log, AllOf(HasSubstr("Warning: could not save the checkpoint of step 0: "),
                              HasSubstr("Completed: "), HasSubstr("No space left"),
                              HasSubstr("small/run/model.safetensors: cannot be written"),
                              HasSubstr("small/run/model-ema.safetensors: cannot be written"),
                              HasSubstr("small/run/best.safetensors: cannot be written")));
  EXPECT_THAT(lost.log, AllOf(HasSubstr("its weights are not saved"), Not(HasSubstr("--resume")),
                              HasSubstr("muster launch " + Path("small/run").string() +
                                        "/config.txtpb --run-dir DIR")));
  const std::string server_log = Slurp(Path("small/run/server.log"));
  const Outcome again = GoOn("small/run");
  EXPECT_EQ(again.exit_code, 3) << again.log;
  EXPECT_THAT(again.log, AllOf(HasSubstr("holds no checkpoint"),
                               HasSubstr("Repeat the run to get the same bits")));
  EXPECT_EQ(Slurp(Path("small/run/server.log")), server_log);
  // Follows the advice.
  const Outcome repeated = Succeeded(Muster(
      {"launch", Path("small/run/config.txtpb"), "--run-dir", Path("repeated")}, "repeated"));
  EXPECT_EQ(repeated.hash(), lost.hash());
}

TEST_F(FullDisk, ARunWithoutARecordedEndSaysWhy) {
  ASSERT_TRUE(Mount("size=8k", MS_REMOUNT));  // the config and little else
  EXPECT_EQ(LaunchIn("small/run", {"run.steps=2"}).exit_code, 1);
  const Outcome runs = Muster({"runs", Path("small"), "--json"});
  EXPECT_EQ(nlohmann::json::parse(runs.log).at(0)["state"], "disk full") << runs.log;
}

TEST_F(FullDisk, CheckpointsAreWrittenAgainWhenThereIsRoom) {
  ASSERT_TRUE(Mount("size=8m", MS_REMOUNT));
  const auto job = Begin({"checkpoint.every_steps=50", "tensorboard.enabled=false"});
  ASSERT_TRUE(Reaches("small/run", 200)) << job->Log();
  Fill();
  ASSERT_TRUE(job->Says("Warning: could not save the checkpoint of step ", 60));
  fs::remove(Path("small/fill"));
  EXPECT_TRUE(Eventually(60, [&] {
    return Slurp(Path("small/run/server.log")).find("checkpoints are written again") !=
           std::string::npos;
  }));
  EXPECT_EQ(job->EndBy(SIGTERM, 60), 143);
  EXPECT_THAT(job->Log(), Not(HasSubstr("not all of the run could be saved")));
}

// The changed config does not fit either, so the run keeps it in memory.
TEST_F(FullDisk, AResumedRunThatCannotBeSavedIsDoneAgainWithTheSameBits) {
  // Writes more lines than fit into the last block of metrics.jsonl, which exists already.
  std::vector<std::string> settings = Large(), longer = Large();
  settings.emplace_back("run.log_every_steps=1");
  longer[0] = "run.epochs=8";
  longer.emplace_back("run.log_every_steps=1");
  const Outcome whole = Succeeded(Launch(longer));
  ASSERT_TRUE(Mount("size=32m", MS_REMOUNT));
  const Outcome begun = Succeeded(LaunchIn("small/run", settings));
  const std::string config = Slurp(Path("small/run/config.txtpb"));
  Fill();
  const Outcome full = GoOn("small/run", {"--epochs", "8"});
  EXPECT_EQ(full.exit_code, 1) << full.log;
  EXPECT_THAT(full.log, AllOf(HasSubstr("config.txtpb: cannot be written"), HasSubstr("Completed"),
                              HasSubstr("metrics.jsonl: cannot be written"),
                              HasSubstr("model.safetensors: cannot be written"),
                              HasSubstr("fix that, then resume from step 24 with the same bits: "
                                        "muster launch --resume " +
                                        Path("small/run").string())));
  EXPECT_EQ(Slurp(Path("small/run/config.txtpb")), config);

  fs::remove(Path("small/fill"));
  const Outcome mended = Succeeded(GoOn("small/run", {"--epochs", "8"}));
  EXPECT_EQ(mended.hash(), whole.hash());
  EXPECT_EQ(Curve(mended.metrics), Curve(whole.metrics));
  EXPECT_EQ(MetadataIn(Path("small/run/model.safetensors"))["weights_hash"], whole.hash());
}

TEST_F(FullDisk, ASeriesSaysThatItsResultsAreMissing) {
  fs::create_directories(Path("small/runs"));
  Fill();
  fs::resize_file(Path("small/fill"), fs::file_size(Path("small/fill")) - 8 * 4096);
  const Outcome series = LaunchIn("small/runs", Large(), {"--repeat", "1"});
  EXPECT_EQ(series.exit_code, 1) << series.log;
  EXPECT_THAT(series.log, HasSubstr("cannot write the results of the series"));
}

TEST_F(FullDisk, TensorBoardGetsBackWhatMetricsHave) {
  const auto first = Begin();
  ASSERT_TRUE(Reaches("small/run", 200)) << first->Log();
  Fill();
  ASSERT_TRUE(first->Says(".muster: cannot be written", 60));
  EXPECT_EQ(first->EndBy(SIGTERM, 60), 143);
  EXPECT_THAT(first->Log(),
              AllOf(HasSubstr(".muster: missing: "), ContainsRegex("[0-9]+ events? of step"),
                    HasSubstr("No space left on device; TensorBoard will not")));

  std::filesystem::remove(Path("small") / "fill");
  Process again({"muster", "launch", "--resume", Path("small/run")}, Path("again"));
  ASSERT_TRUE(Reaches("small/run", 400)) << again.Log();
  EXPECT_EQ(again.EndBy(SIGTERM, 60), 143);
  EXPECT_THAT(again.Log(), Not(HasSubstr(".muster: missing: ")));
}

TEST_F(FullDisk, WhoLooksInSeesALiveStatusAndThatTheDiskIsFull) {
  const auto job = Begin();
  ASSERT_TRUE(Reaches("small/run", 200)) << job->Log();
  Fill();
  const auto step = [&] {
    const Json status = Json::parse(Muster({"top", "--json", Path("small/run")}).log);
    return std::stoll(status["progress"]["at"]["step"].get<std::string>());
  };
  const int64_t before = step();
  EXPECT_TRUE(Eventually(60, [&] { return step() > before; })) << job->Log();
  EXPECT_THAT(Muster({"top", "--once", Path("small/run")}).log,
              HasSubstr("the run cannot be saved: its disk is full"));
  EXPECT_EQ(job->EndBy(SIGTERM, 60), 143);
  fs::remove(Path("small/run") / "run.events");
  const Outcome none = Muster({"top", "--once", Path("small/run")});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(none.log, HasSubstr("its run.events has no status, which the run's server writes "
                                  "every second: its disk is full"));
}

TEST_F(FullDisk, AnExportWithoutRoomSaysSo) {
  ASSERT_EQ(Launch({"run.steps=1"}).exit_code, 0);
  Fill();
  for (const std::string format : {"safetensors", "npz", "onnx"}) {
    const std::string file = Path("small/model." + format);
    const Outcome outcome = Muster({"export", Path("run0"), "--format", format, file});
    EXPECT_EQ(outcome.exit_code, 1) << outcome.log;
    EXPECT_THAT(outcome.log,
                AllOf(HasSubstr(file + ": cannot be written"), HasSubstr("No space left")));
    EXPECT_FALSE(fs::exists(file));
  }
}

}  // namespace
}  // namespace muster::testing
