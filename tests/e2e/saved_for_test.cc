// What lies in checkpoint.save_to is one run's: it is known where the run was moved, comes back, is
// mended, and is never taken by another run or a copy.
#include "common/checkpoint/saved_for.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>
#include <sys/mount.h>

#include <fstream>

#include "common/checkpoint/list_checkpoints.h"
#include "common/checkpoint/run_mark.h"
#include "tests/e2e/small_disk.h"

namespace muster::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// With a rate of 0 no evaluation is better than the first one, at step 7 of 24, and no checkpoint
// has its weights.
std::vector<std::string> FirstIsBest() {
  return {"run.epochs=4", "evaluation.every_epochs=0", "evaluation.every_steps=7",
          "learning_rate.base=0", "checkpoint.keep_last=1"};
}

// Also makes the weights alone larger than the small disk.
std::vector<std::string> Large() {
  std::vector<std::string> settings = FirstIsBest();
  settings.insert(settings.end(),
                  {"model.layer[hidden].dense.units=400", "tensorboard.enabled=false"});
  return settings;
}

class SavedRun : public SmallDisk {
 protected:
  std::vector<std::string> Words(const std::string& run, const std::vector<std::string>& settings,
                                 const std::vector<std::string>& more) const {
    std::vector<std::string> words =
        LaunchWords(Path("tiny.txtpb"), Path("data"), Path(run), settings, more);
    words.erase(words.begin());
    return words;
  }
  // In small/run, where nothing has room; it is in other.
  void RunAndSave() {
    const Outcome saved = Muster(Words("small/run", Large(), {"--save-to", Path("other")}));
    ASSERT_EQ(saved.exit_code, 0) << saved.log;
    ASSERT_TRUE(fs::exists(Path("other/best.safetensors")));
  }
  void MoveTo(const std::string& place) const {
    fs::copy(Path("small/run"), Path(place), fs::copy_options::recursive);
    fs::remove_all(Path("small/run"));
  }
  void Truncate(const std::string& file) const { fs::resize_file(Path(file), 100); }
  std::string SavedForDir() const {
    const auto mark = SavedForIn(Path("other"));
    return mark ? mark->run_dir : "";
  }
  std::string NewestName(const std::string& dir) const {
    const auto names = ListCheckpoints(Path(dir));
    return names.empty() ? "" : names.front().Text();
  }
};

TEST_F(SavedRun, AMovedRunKeepsIt) {
  RunAndSave();
  EXPECT_EQ(SavedForDir(), Path("small/run"));
  MoveTo("moved");
  fs::remove_all(Path("moved/checkpoints"));  // nothing there says which run it is, but the config
  EXPECT_THAT(Muster({"inspect", Path("moved"), "--best"}).log,
              HasSubstr(Path("other/best.safetensors").string()));
  const Outcome rest = GoOn("moved", {"--epochs", "5"});
  EXPECT_EQ(rest.exit_code, 0) << rest.log;
  EXPECT_THAT(rest.log, Not(HasSubstr("in no file")));
  EXPECT_EQ(MetadataIn(Path("moved/best.safetensors"))["step"], "7");
  EXPECT_EQ(SavedForDir(), Path("moved"));
}

TEST_F(SavedRun, ACopyHasNothingThere) {
  ASSERT_TRUE(Mount("size=8m", MS_REMOUNT));
  ASSERT_EQ(Muster(Words("small/run", Large(), {"--save-to", Path("other")})).exit_code, 0);
  Fill();
  (void)GoOn("small/run", {"--epochs", "5"});
  const std::string model = Slurp(Path("other/model.safetensors"));
  ASSERT_NE(model, "");
  fs::copy(Path("small/run"), Path("copy"), fs::copy_options::recursive);
  EXPECT_THAT(Muster({"inspect", Path("copy")}).log,
              Not(HasSubstr(Path("other/model.safetensors").string())));
  const Outcome asked = GoOn("copy", {"--epochs", "6", "--save-to", Path("other")});
  EXPECT_EQ(asked.exit_code, 2) << asked.log;
  EXPECT_THAT(asked.log, HasSubstr("of the one in " + Path("small/run").string()));
  const Outcome alone = GoOn("copy", {"--epochs", "6"});
  EXPECT_EQ(alone.exit_code, 0) << alone.log;
  EXPECT_THAT(alone.log, AllOf(HasSubstr("24 of 36 steps done"),
                               HasSubstr("of which " + Path("copy").string() + " is a copy")));
  EXPECT_EQ(SavedForDir(), Path("small/run"));
  EXPECT_EQ(Slurp(Path("other/model.safetensors")), model);
}

TEST_F(SavedRun, ACompleteRunComesBackWhereThereIsRoom) {
  RunAndSave();
  const std::string metrics = Slurp(Path("small/run/metrics.jsonl"));
  const Outcome full = GoOn("small/run");
  EXPECT_EQ(full.exit_code, 0) << full.log;
  EXPECT_THAT(full.log, AllOf(HasSubstr("nothing is left to do"), HasSubstr("has no room yet"),
                              HasSubstr(Path("other/model.safetensors").string())));
  EXPECT_FALSE(fs::exists(Path("small/run/model.safetensors")));
  // As a service manager does.
  const Outcome server = Muster({"server", Path("tiny.txtpb"), "--run-dir", Path("small/run"),
                                 "--save-to", Path("other"), "--resume", "auto"});
  EXPECT_EQ(server.exit_code, 0) << server.log;
  EXPECT_THAT(server.log, HasSubstr("nothing is left to do"));

  ASSERT_TRUE(Mount("size=64m", MS_REMOUNT));
  const Outcome back = GoOn("small/run");
  EXPECT_EQ(back.exit_code, 0) << back.log;
  EXPECT_THAT(back.log, AllOf(HasSubstr("nothing is left to do (24 of 24 steps done)"),
                              HasSubstr("Back from " + Path("other").string())));
  for (const char* const name : {"model.safetensors", "best.safetensors"}) {
    EXPECT_EQ(Slurp(Path("small/run") / name), Slurp(Path("other") / name));
  }
  EXPECT_EQ(Slurp(Path("small/run/metrics.jsonl")), metrics);
  EXPECT_EQ(NewestName("small/run"), NewestName("other"));
  fs::remove_all(Path("other"));
  EXPECT_THAT(GoOn("small/run").log, HasSubstr("nothing is left to do"));
  EXPECT_EQ(GoOn("small/run", {"--epochs", "5"}).exit_code, 0);
}

TEST_F(SavedRun, ItsDirectoryIsGone) {
  std::vector<std::string> longer = Large();
  longer[0] = "run.epochs=5";
  const Outcome whole = Launch(longer);
  RunAndSave();
  fs::remove_all(Path("small/run"));
  ASSERT_TRUE(Mount("size=64m", MS_REMOUNT));
  const Outcome rest = Muster(
      Words("small/run", longer, {"--save-to", Path("other"), "--resume", "auto"}), "small/run");
  EXPECT_EQ(rest.exit_code, 0) << rest.log;
  EXPECT_THAT(rest.log, HasSubstr("24 of 30 steps done, in"));
  EXPECT_EQ(rest.hash(), whole.hash());
}

// A checkpoint is larger than what else a run leaves: there may be room for that alone.
TEST_F(SavedRun, WithoutACheckpointItBeginsAnew) {
  fs::create_directory(Path("run"));
  std::ofstream(Path("run/metrics.jsonl")) << "{\"step\":1}\n";
  MarkSavedFor(Path("other"), {std::string(32, 'a'), Path("run")});
  std::ofstream(Path("other/metrics.jsonl")) << "{\"step\":1}\n{\"step\":2}\n";
  const Outcome anew =
      Muster(Words("run", {"run.epochs=1"}, {"--save-to", Path("other"), "--resume", "auto"}));
  EXPECT_EQ(anew.exit_code, 0) << anew.log;
  EXPECT_TRUE(fs::exists(Path("run/attempt-1/metrics.jsonl")));
  EXPECT_TRUE(fs::exists(Path("other/attempt-1/metrics.jsonl")));
  EXPECT_EQ(SavedForDir(), "");
}

// Weights of a run that was in the same directory, without a mark.
TEST_F(SavedRun, WeightsAloneAreNobodys) {
  ASSERT_EQ(Muster(Words("run", FirstIsBest(), {})).exit_code, 0);
  fs::create_directory(Path("other"));
  fs::rename(Path("run/best.safetensors"), Path("other/best.safetensors"));
  const Outcome fresh = Muster(Words("another", {}, {"--save-to", Path("other")}));
  EXPECT_EQ(fresh.exit_code, 2) << fresh.log;
  const Outcome lost =
      GoOn("run", {"--epochs", "5", "--set", "checkpoint.save_to=" + Path("other").string()});
  EXPECT_EQ(lost.exit_code, 2) << lost.log;
  EXPECT_THAT(lost.log, HasSubstr("the best.safetensors of another run is there"));
  EXPECT_EQ(GoOn("run", {"--epochs", "5"}).exit_code, 1) << "its best weights are nowhere";
}

TEST_F(SavedRun, DamagedWeightsAreNamedAndMended) {
  RunAndSave();
  const std::string model = Slurp(Path("other/model.safetensors"));
  Truncate("other/model.safetensors");
  EXPECT_THAT(Muster({"inspect", Path("small/run")}).log, HasSubstr("model.safetensors"));
  const Outcome again = GoOn("small/run");  // there is still no room in small
  EXPECT_EQ(again.exit_code, 0) << again.log;
  EXPECT_THAT(again.log,
              AllOf(HasSubstr(Path("other/model.safetensors").string() + ": "),
                    HasSubstr("it is written again from " +
                              (Path("other/checkpoints") / NewestName("other")).string())));
  EXPECT_EQ(MetadataIn(Path("other/model.safetensors"))["step"], "24");
  // A run that goes on writes over it.
  Truncate("other/model.safetensors");
  const Outcome longer = GoOn("small/run", {"--epochs", "5"});
  EXPECT_EQ(longer.exit_code, 0) << longer.log;
  EXPECT_EQ(MetadataIn(Path("other/model.safetensors"))["step"], "30");

  Truncate("other/best.safetensors");
  const Outcome lost = GoOn("small/run", {"--epochs", "6"});
  EXPECT_EQ(lost.exit_code, 1) << lost.log;
  EXPECT_THAT(lost.log,
              AllOf(HasSubstr(Path("other/best.safetensors").string()), HasSubstr("at step 7")));
}

TEST_F(SavedRun, WeightsThatAreWholeInOneOfTheTwoPlacesMendTheOther) {
  RunAndSave();
  ASSERT_TRUE(Mount("size=64m", MS_REMOUNT));
  ASSERT_EQ(GoOn("small/run").exit_code, 0);
  Truncate("other/best.safetensors");
  EXPECT_THAT(Muster({"inspect", Path("small/run"), "--best"}).log,
              AllOf(HasSubstr("warning: " + Path("other/best.safetensors").string()),
                    HasSubstr(Path("small/run/best.safetensors").string())));
  const Outcome there = GoOn("small/run");
  EXPECT_EQ(there.exit_code, 0) << there.log;
  EXPECT_THAT(there.log, HasSubstr("it is written again from"));
  EXPECT_EQ(Slurp(Path("other/best.safetensors")), Slurp(Path("small/run/best.safetensors")));
  Truncate("small/run/best.safetensors");
  EXPECT_EQ(GoOn("small/run").exit_code, 0);
  EXPECT_EQ(Slurp(Path("other/best.safetensors")), Slurp(Path("small/run/best.safetensors")));
}

// A run that has gone on since, where there was room, has left them behind.
TEST_F(SavedRun, OlderWeightsThereAreNotTakenForTheLast) {
  RunAndSave();
  ASSERT_TRUE(Mount("size=64m", MS_REMOUNT));
  ASSERT_EQ(GoOn("small/run", {"--epochs", "5"}).exit_code, 0);
  ASSERT_EQ(MetadataIn(Path("other/model.safetensors"))["step"], "24");
  fs::remove(Path("small/run/model.safetensors"));
  const Outcome again = GoOn("small/run");
  EXPECT_EQ(again.exit_code, 0) << again.log;
  EXPECT_EQ(MetadataIn(Path("small/run/model.safetensors"))["step"], "30");
}

// Of a run that was killed: its last lines may be where the folder is.
TEST_F(SavedRun, AnOlderBestIsNotTakenInSilence) {
  ASSERT_EQ(Muster(Words("run", FirstIsBest(), {"--save-to", Path("other")})).exit_code, 0);
  const std::string lines = Slurp(Path("run/metrics.jsonl"));
  std::ofstream(Path("run/metrics.jsonl")) << lines.substr(0, lines.size() / 2);
  const Outcome best = Muster({"inspect", Path("run"), "--best"});
  EXPECT_EQ(best.exit_code, 0) << best.log;
  EXPECT_THAT(best.log, AllOf(HasSubstr("a later evaluation may have been better"),
                              HasSubstr(Path("other").string())));
}

TEST_F(SavedRun, MetricsThatWereCutComeBack) {
  const Outcome whole = Launch({"run.epochs=4"});
  ASSERT_EQ(Muster(Words("run", {"run.epochs=2"}, {})).exit_code, 0);
  MarkSavedFor(Path("other"), {RunIdIn(Path("run")), Path("run")});
  const std::string lines = Slurp(Path("run/metrics.jsonl"));
  std::ofstream(Path("other/metrics.jsonl")) << lines;
  std::ofstream(Path("run/metrics.jsonl")) << lines.substr(0, lines.find('\n') + 1);
  const Outcome rest = GoOn("run", {"--epochs", "4", "--save-to", Path("other")});
  EXPECT_EQ(rest.exit_code, 0) << rest.log;
  EXPECT_THAT(rest.log, Not(HasSubstr("is not as the run left it")));
  EXPECT_EQ(Curve(rest.metrics), Curve(whole.metrics));
}

TEST_F(SavedRun, ADryRunLooksAtIt) {
  std::ofstream(Path("file")) << "text";
  const Outcome refused = Muster(Words("run", {}, {"--dry-run", "--save-to", Path("file/in/it")}));
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.log, HasSubstr("--save-to " + Path("file/in/it").string() + ": "));
  EXPECT_EQ(Muster(Words("run", {}, {"--dry-run", "--save-to", Path("deep/other")})).exit_code, 0);
  EXPECT_FALSE(fs::exists(Path("deep")));
}

}  // namespace
}  // namespace muster::testing
