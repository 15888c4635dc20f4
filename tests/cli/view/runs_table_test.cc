// `muster runs` at several widths, and as JSON.
#include <gmock/gmock-matchers.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/view/runs_command.h"
#include "tests/cli/view/run_files.h"

namespace muster::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
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
}

}  // namespace
}  // namespace muster::testing
