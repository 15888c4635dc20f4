// config.txtpb: what the user wrote, and what was computed.
#include "common/config/resolved.h"

#include "common/base/file.h"
#include "tests/config/config_fixture.h"

namespace muster::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class ResolvedTest : public ConfigTest {
 protected:
  static LoadedConfig ToLaunch(const std::string& path,
                               const std::vector<std::string>& settings = {}) {
    std::vector<Setting> parsed;
    for (const std::string& text : settings) parsed.push_back(ParseSetting(text));
    return LoadToLaunch(path, parsed);
  }
  // The config.txtpb of a run.
  std::string Run(const std::vector<std::string>& settings = {}) {
    LoadedConfig run = ToLaunch(Config("cluster { min_workers: 2 }"), settings);
    ResolveForMachine(run.config, 4);
    run.config.mutable_run()->set_dir(dir_);
    run.config.mutable_worker()->set_soft_placement(true);
    WriteRunConfig(run.written, run.config, dir_ + "/config.txtpb");
    return dir_ + "/config.txtpb";
  }
};

TEST_F(ResolvedTest, TheUsersPartHasWhatIsInTheConfigAndTheSettings) {
  const config::Config written = WrittenIn(Run({"run.dir=mine", "run.seed=7", "data.dir=files"}));
  EXPECT_EQ(written.run().ShortDebugString(), "seed: 7 epochs: 2 global_batch: 64");
  EXPECT_EQ(written.cluster().ShortDebugString(), "min_workers: 2");
  EXPECT_EQ(written.data().format(), config::Data::CIFAR10);
  EXPECT_EQ(written.model().layer_size(), 2);
  EXPECT_FALSE(written.has_worker() || written.has_optimizer() || written.has_resolved());
  const std::string path = dir_ + "/config.txtpb";
  const config::Config run = LoadConfig(path, {});
  EXPECT_EQ(run.run().dir(), dir_);
  EXPECT_EQ(run.cluster().min_workers(), 2u);
  EXPECT_TRUE(run.data().dir().starts_with('/'));
  EXPECT_EQ(run.model().layer_size(), 2);
  EXPECT_EQ(ConfigText(ReadResolvedConfig(path)), ConfigText(run));
}

TEST_F(ResolvedTest, ANewLaunchKeepsTheBitsAndChoosesThePlaceAgain) {
  const std::string path = Run();
  const config::Config run = LoadConfig(path, {});
  config::Config again = ToLaunch(path).config;
  EXPECT_FALSE(again.run().has_dir());
  EXPECT_TRUE(again.worker().soft_placement() && again.worker().has_backend());
  EXPECT_EQ(again.cluster().workers(), run.cluster().workers());
  EXPECT_EQ(again.run().slices(), run.run().slices());
  again = ToLaunch(path, {"worker.devices=0,1", "run.dir=mine"}).config;
  EXPECT_FALSE(again.worker().has_backend() || again.worker().has_soft_placement());
  EXPECT_EQ(again.cluster().workers(), run.cluster().workers());
  EXPECT_EQ(again.run().slices(), run.run().slices());
  EXPECT_EQ(again.run().dir(), "mine");
}

TEST_F(ResolvedTest, ValuesAreThoseOfTheRunUnlessSomebodyEditsThem) {
  LoadedConfig run = ToLaunch(Config("cluster {}"), {"data.preprocess.mean=[1, 2, 3]"});
  config::Preprocess& preprocess = *run.config.mutable_data()->mutable_preprocess();
  preprocess.set_mean(0, 7);
  for (const double stddev : {4, 5, 6}) preprocess.add_stddev(stddev);
  std::string text = RunConfigText(run.written, run.config);
  const std::string path = Write("config.txtpb", text);
  EXPECT_EQ(WrittenIn(path).data().preprocess().ShortDebugString(), "mean: 7 mean: 2 mean: 3");
  EXPECT_THAT(LoadConfig(path, {}).data().preprocess().stddev(), ElementsAre(4, 5, 6));
  text.replace(text.find("mean:"), 0, "stddev: [1, 1, 2] ");
  Write("config.txtpb", "optimizer { momentum: 0.5 }\n" + text);
  const config::Config edited = LoadConfig(path, {});
  EXPECT_EQ(edited.optimizer().momentum(), 0.5f);
  EXPECT_THAT(edited.data().preprocess().stddev(), ElementsAre(1, 1, 2));
}

// What the job does not have any more must not return with the user's part.
TEST_F(ResolvedTest, WhatWasTakenOutOfTheConfigStaysOut) {
  LoadedConfig run = ToLaunch(Config("cluster {}"), {"run.trace_file=a"});
  run.config.mutable_run()->clear_trace_file();
  const std::string path = Write("config.txtpb", RunConfigText(run.written, run.config));
  EXPECT_FALSE(LoadConfig(path, {}).run().has_trace_file());
}

TEST_F(ResolvedTest, FilesOfOlderVersionsAreAllComputed) {
  const config::Config run = LoadConfig(Run(), {});
  const std::string text =
      "# a note\n" + std::string(kWrittenByMuster) + "; launching ...\n" + ConfigText(run);
  const std::string old = Write("config.txtpb", text), copy = Write("mine.txtpb", text);
  EXPECT_EQ(ConfigText(LoadConfig(old, {})), ConfigText(run));
  EXPECT_FALSE(ToLaunch(old).config.run().has_dir());
  EXPECT_TRUE(ToLaunch(copy).config.run().has_dir());  // its user may have edited it
  EXPECT_EQ(WrittenIn(old).ByteSizeLong(), 0u);
  EXPECT_EQ(WrittenIn(Write("damaged.txtpb", "run { resolved")).ByteSizeLong(), 0u);
  EXPECT_EQ(WrittenIn(dir_ + "/missing.txtpb").ByteSizeLong(), 0u);
}

TEST_F(ResolvedTest, MistakesNameTheLineOrTheSetting) {
  const std::string path = Run();
  EXPECT_THAT(ErrorOf(path, {"resolved.run.seed=1"}), HasSubstr("--set resolved.run.seed=1"));
  const std::string wrong = Config("resolved {\n cluster { workers: 8 }\n run { slices: 0 } }");
  EXPECT_THAT(ErrorOf(wrong), AllOf(StartsWith(wrong + ":4: run.slices"), HasSubstr("got 0")));
  EXPECT_THAT(ErrorOf(Config("resolved { resolved { run { seed: 3 } } }")),
              HasSubstr("resolved.resolved"));
  // One mistake, not a second one that follows from it.
  EXPECT_THAT(ErrorOf(Config("resolved { checkpoint { keep_last: x } }")),
              StartsWith(dir_ + "/c.txtpb:2: resolved.checkpoint.keep_last"));
  EXPECT_THAT(ErrorOf(Config("Run { seed: 3 }")),
              AllOf(HasSubstr("\"run\""), Not(HasSubstr("resolved"))));
}

TEST_F(ResolvedTest, TypedDevicesOverrideTheBackendOfTheFile) {
  const std::string path = Config("worker { backend: CUDA }");
  const LoadedConfig cpu = ToLaunch(path, {"worker.devices=CPU"});
  EXPECT_FALSE(cpu.config.worker().has_backend() || cpu.written.worker().has_backend());
  EXPECT_TRUE(ToLaunch(path, {"worker.devices=auto"}).config.worker().has_backend());
}

}  // namespace
}  // namespace muster::testing
