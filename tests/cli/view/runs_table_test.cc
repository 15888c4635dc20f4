// `muster runs` at several widths, and as JSON.
#include <gmock/gmock-matchers.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/view/run_settings.h"
#include "cli/view/runs_command.h"
#include "common/base/error.h"
#include "common/config/resolved.h"
#include "tests/cli/view/run_files.h"

namespace muster::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Le;
using ::testing::Not;
using ::testing::Property;

class RunsTableTest : public RunFiles {
 protected:
  RunsTableTest() {
    MakeRun("cifar10-20260131-120000", {EvaluationText(50, 0.9012), FinalText(100, "completed")});
    MakeRun("cifar10-20260131-130000", {IntervalText(40, 1)});
    std::vector<std::string> troubles;
    runs_ = FindRuns(Dir(), troubles);
  }
  std::vector<RunRecord> runs_;
};

TEST_F(RunsTableTest, AWideOneHasEveryColumn) {
  const std::vector<std::string> lines = RunsTable(runs_, 200);
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_THAT(lines[0], AllOf(HasSubstr("state"), HasSubstr("best"), HasSubstr("samples/s"),
                              HasSubstr("workers"), HasSubstr("began"), HasSubstr("hash")));
  EXPECT_THAT(lines[2], AllOf(HasSubstr("completed"), HasSubstr("90.12 %"), HasSubstr("1,000"),
                              HasSubstr("00112233445566ff")));
  EXPECT_THAT(lines[3], AllOf(HasSubstr("killed"), HasSubstr(" - ")));
}

TEST_F(RunsTableTest, EightyColumnsKeepWhatMattersMost) {
  const std::vector<std::string> lines = RunsTable(runs_, 79);
  EXPECT_THAT(lines, Each(Property(&std::string::size, Le(79u))));
  EXPECT_THAT(lines[0], AllOf(HasSubstr("run"), HasSubstr("state"), HasSubstr("accuracy"),
                              HasSubstr("time"), HasSubstr("hash"), Not(HasSubstr("workers"))));
}

TEST_F(RunsTableTest, JsonHasNullForWhatIsNotKnown) {
  const auto all = nlohmann::json::parse(RunsJson(runs_));
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0]["state"], "completed");
  EXPECT_EQ(all[0]["test_accuracy"], 0.9012);
  EXPECT_EQ(all[1]["state"], "killed");
  EXPECT_TRUE(all[1]["test_accuracy"].is_null());
  EXPECT_EQ(nlohmann::json::parse(RunsJson({})), nlohmann::json::array());
}

TEST_F(RunsTableTest, JsonHasTheLossesOfValues) {
  const RunRecord run =
      ReadRun(MakeRun("values", {LossText(10, "validation", 0.5), LossText(20, "validation", 0.25),
                                 LossText(20, "test", 0.125)}));
  const auto one = nlohmann::json::parse(RunsJson({run}))[0];
  EXPECT_EQ(one["validation_loss"], 0.25);
  EXPECT_EQ(one["test_loss"], 0.125);
  EXPECT_TRUE(one["validation_accuracy"].is_null());
  // The best of this run is on another set than that of the others.
  EXPECT_THAT(RunsTable({run}, 200)[0], HasSubstr("best val. "));
  runs_.push_back(run);
  EXPECT_THAT(RunsTable(runs_, 200)[0], HasSubstr("best val./test "));
}

class RunSettingsTest : public RunFiles {
 protected:
  // A run whose user gave only `settings`.
  void Add(const std::string& name, const std::vector<std::string>& settings) {
    const std::string dir = MakeRun(name, {IntervalText(40, 1)});
    std::vector<Setting> parsed;
    for (const std::string& setting : settings) parsed.push_back(ParseSetting(setting));
    Write("given.txtpb", kGiven);
    LoadedConfig loaded = LoadToLaunch(Dir() + "/given.txtpb", parsed);
    ResolveConfig(loaded.config, 2);
    WriteRunConfig(loaded.written, loaded.config, dir + "/config.txtpb");
  }
  std::vector<RunRecord> Listed(const std::vector<std::string>& conditions) const {
    std::vector<std::string> troubles;
    std::vector<RunRecord> runs = FindRuns(Dir(), troubles);
    CompareSettings(conditions, runs);
    return runs;
  }
  static constexpr const char* kGiven = R"(
    run { epochs: 1 global_batch: 32 }
    data { format: SYNTHETIC synthetic { height: 8 width: 8 classes: 3 } }
    model {
      layer { name: "flat" flatten {} }
      layer { name: "hidden" dense { units: 5 } }
      layer { name: "out" dense { units: 3 } }
      layer { name: "loss" softmax_cross_entropy {} }
    }
    optimizer { type: SGD }
    learning_rate { base: 0.1 })";
};

TEST_F(RunSettingsTest, ShowsWhatDiffersByTheShortestClearNames) {
  // What concerns the machine is left out, although the user gave it.
  Add("a", {"learning_rate.base=0.05", "optimizer.momentum=0.5", "cluster.workers=2",
            "data.preprocess.mean=[1, 2, 3]", "data.preprocess.stddev=[1, 1, 1]"});
  Add("b", {"run.seed=1", "worker.threads=2", "model.layer[hidden].dense.units=7"});
  const std::vector<RunRecord> runs = Listed({});
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_THAT(RunsTable(runs, 1000)[2],
              HasSubstr("  mean=1,2,3 stddev=1,1,1 base=0.05 model.layer[1].dense.units=5 "
                        "momentum=0.5"));
  EXPECT_THAT(RunsTable(runs, 1000)[3], HasSubstr("  base=0.1 model.layer[1].dense.units=7"));
  EXPECT_THAT(RunsTable(runs, 79), Each(Property(&std::string::size, Le(79u))));
  EXPECT_THAT(RunsTable(runs, 79)[0], HasSubstr("differs"));
  const auto json = nlohmann::json::parse(RunsJson(runs));
  EXPECT_EQ(json[0]["differs"]["learning_rate.base"], "0.05");
  EXPECT_TRUE(json[1]["differs"]["data.preprocess.mean"].is_null());
  EXPECT_FALSE(json[0]["differs"].contains("run.seed"));  // 1 is the default
  EXPECT_THAT(RunsTable({runs[0]}, 1000)[0], HasSubstr("differs"));
  EXPECT_THAT(RunsTable(Listed({"base=0.1"}), 1000)[0], Not(HasSubstr("differs")));
}

TEST_F(RunSettingsTest, ADamagedConfigIsNotCompared) {
  Add("a", {});
  Add("b", {"learning_rate.base=0.2"});
  Add("c", {});
  Write("c/config.txtpb", "{");
  EXPECT_THAT(RunsTable(Listed({}), 1000)[3], EndsWith("  base=0.2"));
}

TEST_F(RunSettingsTest, RunsOfManyKindsKeepTheirColumns) {
  Add("a", {});
  Add("b", {"run.seed=2", "learning_rate.base=1", "optimizer.momentum=0.5", "run.epochs=2",
            "run.global_batch=16", "data.synthetic.height=9", "model.layer[hidden].dense.units=7"});
  const std::vector<std::string> lines = RunsTable(Listed({}), 79);
  EXPECT_THAT(lines.front(), AllOf(HasSubstr("samples/s"), Not(HasSubstr("differs"))));
  EXPECT_THAT(lines.back(), HasSubstr("7 settings"));
}

TEST_F(RunSettingsTest, ConditionsChooseRuns) {
  Add("a", {});
  Add("b", {"learning_rate.base=0.2"});
  MakeRun("c", {FinalText(100, "completed")});  // without a config
  const auto names = [&](const std::vector<std::string>& conditions) {
    std::vector<std::string> names;
    for (const RunRecord& run : Listed(conditions)) names.push_back(run.name);
    return names;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(names({"learning_rate.base=2e-1"}), Names{"b"});
  EXPECT_EQ(names({"optimizer.type=sgd"}), (Names{"a", "b"}));
  EXPECT_EQ(names({"base=0.1", "state=killed"}), Names{"a"});
  EXPECT_EQ(names({"state=completed"}), Names{"c"});
  EXPECT_EQ(names({"base=0.3"}), Names{});
  for (const std::string condition : {"bas=1", "type=SGD", "=1", "", "base", "state=complete"})
    EXPECT_THROW((void)names({condition}), Error) << condition;
}

TEST_F(RunsTableTest, ARunWithoutAStepBeganWithItsConfig) {
  MakeRun("new", {});
  Write("new/config.txtpb", "");
  std::filesystem::last_write_time(Dir() + "/new/config.txtpb",
                                   std::chrono::file_clock::from_sys(std::chrono::sys_seconds()));
  EXPECT_THAT(ReadRun(Dir() + "/new").began,
              AnyOf(HasSubstr("1970-01-01"), HasSubstr("1969-12-31")));
}

TEST_F(RunsTableTest, TheBestComeFirstAndTheUnknownLast) {
  MakeRun("better", {EvaluationText(50, 0.95)});
  ::testing::internal::CaptureStdout();
  ASSERT_EQ(ListRuns({.dir = Dir(), .sort = "accuracy", .json = true}), 0);
  const auto all = nlohmann::json::parse(::testing::internal::GetCapturedStdout());
  EXPECT_EQ(all[0]["run"], "better");
  EXPECT_EQ(all[1]["test_accuracy"], 0.9012);
  EXPECT_TRUE(all[2]["test_accuracy"].is_null());
}

}  // namespace
}  // namespace muster::testing
