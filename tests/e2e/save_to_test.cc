// Where the directory of a run cannot take what it leaves: what becomes of it, what is said, and
// who finds it again.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>
#include <sys/mount.h>

#include <csignal>
#include <fstream>

#include "tests/e2e/small_disk.h"

namespace muster::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class SaveToTest : public SmallDisk {
 protected:
  // The weights alone are larger than the disk; all else has room.
  static std::vector<std::string> Large() {
    return {"run.epochs=4", "model.layer[hidden].dense.units=800", "tensorboard.enabled=false"};
  }
  std::vector<std::string> Words(const std::string& run, const std::vector<std::string>& more,
                                 const std::vector<std::string>& settings = Large()) const {
    std::vector<std::string> words =
        LaunchWords(Path("tiny.txtpb"), Path("data"), Path(run), settings, more);
    words.erase(words.begin());
    return words;
  }
  // The only folder in there.
  static fs::path OnlyIn(const fs::path& folder) {
    std::vector<fs::path> all;
    for (const auto& entry : fs::directory_iterator(folder)) all.push_back(entry.path());
    EXPECT_EQ(all.size(), 1u);
    return all.empty() ? fs::path() : all.front();
  }
  static fs::path OnlyFolderIn(const fs::path& folder) {
    fs::path found;
    for (const auto& entry : fs::directory_iterator(folder)) {
      if (entry.is_directory()) found = entry.path();
    }
    return found;
  }
  void ExpectCommandsFindIt(const std::string& run, const fs::path& folder) {
    const std::string model = folder / "model.safetensors";
    const Outcome inspect = Muster({"inspect", Path(run)});
    EXPECT_EQ(inspect.exit_code, 0) << inspect.log;
    EXPECT_THAT(inspect.log, AllOf(HasSubstr("completed"), HasSubstr(model)));
    EXPECT_THAT(Muster({"inspect", Path(run), "--best"}).log, HasSubstr(folder / "best.safet"));
    const Outcome eval = Muster({"eval", Path(run), "--data", Path("data"), "--json"});
    EXPECT_EQ(eval.exit_code, 0) << eval.log;
    EXPECT_THAT(eval.log, HasSubstr(model));
    const Outcome predict = Muster({"predict", Path(run), "--data", Path("data"), "--samples=0"});
    EXPECT_EQ(predict.exit_code, 0) << predict.log;
    EXPECT_THAT(predict.log, HasSubstr(model));
    const Outcome exported = Muster({"export", Path(run), "--format", "npz", Path("out.npz")});
    EXPECT_EQ(exported.exit_code, 0) << exported.log;
    EXPECT_THAT(exported.log, HasSubstr(model));
  }
};

// Neither the home directory, which is on the same disk, nor anything else has room.
TEST_F(SaveToTest, WhereNothingIsKeptNothingIsAdvisedThatWouldNotWork) {
  ::setenv("HOME", Path("small").c_str(), 1);
  const Outcome lost = Muster(Words("small/run", {}), "small/run");
  EXPECT_EQ(lost.exit_code, 1);
  EXPECT_THAT(lost.log, AllOf(HasSubstr("its weights are on no disk"), Not(HasSubstr("--resume")),
                              HasSubstr("muster launch " + Path("small/run").string() +
                                        "/config.txtpb --save-to DIR")));
  const std::string server_log = Slurp(Path("small/run/server.log"));
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{}, {"--save-to", Path("other")}}) {
    const Outcome again = GoOn("small/run", more);
    EXPECT_EQ(again.exit_code, 3) << again.log;
    EXPECT_THAT(again.log, AllOf(HasSubstr("holds no checkpoint"), Not(HasSubstr("server")),
                                 HasSubstr("can be done again, with the same bits")));
  }
  EXPECT_EQ(Slurp(Path("small/run/server.log")), server_log);
  EXPECT_FALSE(fs::exists(Path("other")));
  // What was advised.
  const Outcome repeated = Muster({"launch", Path("small/run/config.txtpb"), "--save-to",
                                   Path("other"), "--run-dir", Path("repeated")},
                                  "repeated");
  EXPECT_EQ(repeated.exit_code, 0) << repeated.log;
  EXPECT_EQ(repeated.hash(), lost.hash());
  EXPECT_FALSE(fs::exists(Path("other"))) << "nothing had to go there";
}

TEST_F(SaveToTest, TheHomeDirectoryTakesWhatIsLeft) {
  fs::create_directory(Path("home"));
  ::setenv("HOME", Path("home").c_str(), 1);
  const Outcome saved = Muster(Words("small/run", {}), "small/run");
  EXPECT_EQ(saved.exit_code, 0) << saved.log;
  const fs::path folder = OnlyIn(Path("home/muster-saved"));
  EXPECT_EQ(MetadataIn(folder / "model.safetensors")["weights_hash"], saved.hash());
  ExpectCommandsFindIt("small/run", folder);
  const Outcome rest = GoOn("small/run", {"--epochs", "5"});
  EXPECT_EQ(rest.exit_code, 0) << rest.log;
  EXPECT_EQ(MetadataIn(folder / "model.safetensors")["step"], "30");
  // The run again is another one, and has a place of its own.
  const Outcome repeated = Muster(
      {"launch", Path("small/run/config.txtpb"), "--run-dir", Path("small/again")}, "small/again");
  EXPECT_EQ(repeated.exit_code, 0) << repeated.log;
  EXPECT_EQ(MetadataIn(folder / "model.safetensors")["step"], "30");

  // Who looks for it when it has gone is told.
  fs::remove_all(folder);
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"inspect", Path("small/run")},
        {"inspect", Path("small/run"), "--best"},
        {"eval", Path("small/run"), "--data", Path("data")},
        {"launch", "--resume", Path("small/run")}}) {
    EXPECT_THAT(Muster(words).log, HasSubstr(folder.string())) << words.front();
  }
}

TEST_F(SaveToTest, ABadOneIsRefusedAtTheStart) {
  ASSERT_EQ(Launch({"run.steps=1"}).exit_code, 0);
  ASSERT_TRUE(Mount("size=256k", MS_REMOUNT | MS_RDONLY));
  std::ofstream(Path("file")) << "text";
  for (const auto& [place, why] : std::map<std::string, std::string>{
           {"/proc/muster", "cannot be made"},
           {Path("file"), "found a file"},
           {Path("file/in/it"), "Not a directory"},
           {Path("run"), "this is the run directory, or in it"},
           {Path("run/checkpoints"), "this is the run directory, or in it"},
           {Path("run0"), "the checkpoints of another run are there"},
           {Path("run0/checkpoints"), "the run_id of another run is there"},
           {Path("small"), "Read-only file system"},
           {Path("small/below"), "Read-only file system"}}) {
    const Outcome refused = Muster(Words("run", {"--save-to", place}));
    EXPECT_EQ(refused.exit_code, 2) << place;
    EXPECT_THAT(refused.log, AllOf(HasSubstr("muster: error: --save-to " + place + ": "),
                                   HasSubstr(why), Not(HasSubstr("Started"))));
    EXPECT_FALSE(fs::exists(Path("run"))) << place;
  }
  const Outcome series = Muster(Words("run", {"--repeat", "2", "--save-to", Path("file")}));
  EXPECT_EQ(series.exit_code, 2) << series.log;
  EXPECT_FALSE(fs::exists(Path("run")));
}

TEST_F(SaveToTest, OneIsForOneRunAtATime) {
  auto words = Words("run", {"--save-to", Path("deep/other")}, {"run.epochs=100000"});
  words.insert(words.begin(), "muster");
  Process first(words, Path("run.log"));
  ASSERT_TRUE(Reaches("run", 2));
  const Outcome second = Muster(Words("second", {"--save-to", Path("deep/other")}));
  EXPECT_EQ(second.exit_code, 2);
  EXPECT_THAT(second.log, HasSubstr("another run that is under way has it as its own"));
  first.Signal(SIGINT);
  EXPECT_EQ(first.Wait(20), 130);
  EXPECT_FALSE(fs::exists(Path("deep"))) << "nothing had to go there";
}

// What changes about the config has no room either: the run goes on with it in memory.
TEST_F(SaveToTest, ARunGoesOnOnADiskThatIsStillFull) {
  // More lines than the last page of metrics.jsonl, which is there already, has room for.
  std::vector<std::string> settings = Large(), longer = Large();
  settings.emplace_back("run.log_every_steps=1");
  longer[0] = "run.epochs=8";
  longer.emplace_back("run.log_every_steps=1");
  const Outcome whole = Launch(longer);
  ASSERT_EQ(whole.exit_code, 0) << whole.log;
  ASSERT_TRUE(Mount("size=8m", MS_REMOUNT));
  ASSERT_EQ(Muster(Words("small/run", {}, settings)).exit_code, 0);
  const std::string config = Slurp(Path("small/run/config.txtpb"));
  Fill();
  const Outcome rest = GoOn("small/run", {"--epochs", "8", "--save-to", Path("other")});
  EXPECT_EQ(rest.exit_code, 1) << rest.log;
  EXPECT_THAT(rest.log, AllOf(HasSubstr("config.txtpb: cannot be written"), HasSubstr("Completed"),
                              HasSubstr("metrics.jsonl: cannot be written"),
                              HasSubstr("all of it is in " + Path("other").string()),
                              HasSubstr("muster launch --resume " + Path("small/run").string() +
                                        " --save-to " + Path("other").string())));
  EXPECT_EQ(Slurp(Path("small/run/config.txtpb")), config);
  EXPECT_EQ(MetadataIn(Path("other/model.safetensors"))["weights_hash"], whole.hash());
  EXPECT_EQ(Curve(Metrics("other")).back(), Curve(whole.metrics).back());

  // What was advised mends it.
  fs::remove(Path("small/fill"));
  const Outcome mended = GoOn("small/run", {"--save-to", Path("other")});
  EXPECT_EQ(mended.exit_code, 0) << mended.log;
  EXPECT_EQ(mended.hash(), whole.hash());
  EXPECT_EQ(MetadataIn(Path("small/run/model.safetensors"))["weights_hash"], whole.hash());
}

// Another run had the directory, and what it could not take, before.
TEST_F(SaveToTest, TheCheckpointsOfAnEarlierRunAreNotTaken) {
  ASSERT_EQ(Muster(Words("small/run", {"--save-to", Path("other")})).exit_code, 0);
  fs::remove_all(Path("small/run"));
  ASSERT_TRUE(Mount("size=8m", MS_REMOUNT));
  ASSERT_EQ(Muster(Words("small/run", {"--seed", "6"})).exit_code, 0);
  fs::remove_all(Path("small/run/checkpoints"));
  const auto model = Slurp(Path("small/run/model.safetensors"));
  const Outcome refused = GoOn("small/run", {"--save-to", Path("other"), "--epochs", "9"});
  EXPECT_EQ(refused.exit_code, 3) << refused.log;
  EXPECT_THAT(refused.log, HasSubstr("has files of another run"));
  EXPECT_EQ(Slurp(Path("small/run/model.safetensors")), model);
}

TEST_F(SaveToTest, ItIsNoRunToGoOn) {
  ASSERT_EQ(Muster(Words("small/run", {"--save-to", Path("other")})).exit_code, 0);
  {
    std::fstream file(Path("other/model.safetensors"), std::ios::in | std::ios::out);
    file.seekp(-1, std::ios::end).put('\x55');
  }
  const std::string run = Path("small/run");
  const Outcome damaged = Muster({"eval", run, "--data", Path("data")});
  EXPECT_EQ(damaged.exit_code, 3) << damaged.log;
  EXPECT_THAT(damaged.log, HasSubstr("`muster launch --resume " + run + "`"));
  const Outcome refused = GoOn("other", {});
  EXPECT_EQ(refused.exit_code, 2) << refused.log;
  EXPECT_THAT(refused.log, HasSubstr("expected that directory: --resume " + run));
}

// As a service manager asks for it again and again.
TEST_F(SaveToTest, ACompleteRunThatLiesThereIsComplete) {
  ASSERT_EQ(Muster(Words("small/run", {"--save-to", Path("other")})).exit_code, 0);
  const std::string metrics = Slurp(Path("small/run/metrics.jsonl"));
  const Outcome again =
      Muster(Words("small/run", {"--save-to", Path("other"), "--resume", "auto"}));
  EXPECT_EQ(again.exit_code, 0) << again.log;
  EXPECT_THAT(again.log, HasSubstr("nothing is left to do"));
  EXPECT_EQ(Slurp(Path("small/run/metrics.jsonl")), metrics);
}

TEST_F(SaveToTest, DamageThereIsNamed) {
  std::vector<std::string> settings = Large();
  settings[0] = "run.epochs=5";
  const Outcome whole = Launch(settings);
  ASSERT_TRUE(Mount("size=8m", MS_REMOUNT));
  ASSERT_EQ(Muster(Words("small/run", {})).exit_code, 0);
  Fill();
  (void)GoOn("small/run", {"--epochs", "5", "--save-to", Path("other")});
  const fs::path newest = OnlyFolderIn(Path("other/checkpoints"));
  {
    std::fstream file(newest / "tensors.safetensors", std::ios::in | std::ios::out);
    file.seekp(-1, std::ios::end).put('\x55');
  }
  fs::remove(Path("small/fill"));
  const Outcome rest = GoOn("small/run", {"--epochs", "5", "--save-to", Path("other")});
  EXPECT_EQ(rest.exit_code, 0) << rest.log;
  EXPECT_THAT(rest.log, HasSubstr(newest.string()));
  EXPECT_EQ(rest.hash(), whole.hash());
  EXPECT_TRUE(fs::exists(newest)) << "what is damaged is left where it is";
}

// The run directory has best weights, but those of a later evaluation were better.
TEST_F(SaveToTest, OlderWeightsAreNotTakenForTheBest) {
  ASSERT_EQ(Launch({"run.epochs=1"}).exit_code, 0);
  const fs::path metrics = Path("run0/metrics.jsonl");
  const std::string lines = Slurp(metrics);
  const size_t last = lines.rfind('\n', lines.size() - 2) + 1;
  std::ofstream(metrics) << lines.substr(0, last) << R"({"step":500,"test_accuracy":0.99})"
                         << "\n"
                         << lines.substr(last);
  const Outcome best = Muster({"inspect", Path("run0"), "--best"});
  EXPECT_EQ(best.exit_code, 3);
  EXPECT_THAT(best.log, HasSubstr("the best evaluation of the run was at step 500"));
}

TEST_F(SaveToTest, ASeriesGoesOnOnAFullDisk) {
  fs::create_directories(Path("small/runs"));
  Fill();
  fs::resize_file(Path("small/fill"), fs::file_size(Path("small/fill")) - 12 * 4096);
  const Outcome series = Muster(Words("small/runs", {"--repeat", "3", "--save-to", Path("other")}));
  EXPECT_EQ(series.exit_code, 1) << series.log;
  EXPECT_THAT(series.log, AllOf(HasSubstr("3 runs of 3:"), HasSubstr("(3 runs)"),
                                HasSubstr("not in its directory"),
                                HasSubstr(Path("other/repeat.json").string())));
  const auto json = nlohmann::json::parse(Slurp(Path("other/repeat.json")));
  EXPECT_EQ(json["runs"].size(), 3u);
  for (const char* const seed : {"seed-1", "seed-2", "seed-3"}) {
    EXPECT_TRUE(fs::exists(Path("other") / seed / "model.safetensors")) << seed;
  }
  // The last one had no room at all.
  EXPECT_TRUE(fs::exists(Path("other/seed-3/config.txtpb")));
  const Outcome runs = Muster({"runs", Path("small/runs"), "--json"});
  EXPECT_EQ(nlohmann::json::parse(runs.log).size(), 3u) << runs.log;
  EXPECT_THAT(GoOn("small/runs").log, HasSubstr("is a series of runs"));
}

}  // namespace
}  // namespace muster::testing
