// `muster plot` of run directories.
#include <gmock/gmock-matchers.h>

#include "cli/view/plot_command.h"
#include "common/base/error.h"
#include "tests/cli/view/run_files.h"

namespace muster::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class PlotTest : public RunFiles {
 protected:
  PlotTest()
      : run_(MakeRun("a", {IntervalText(10, 2), IntervalText(20, 1), EvaluationText(20, 0.75),
                           FinalText(20, "completed")})) {}
  const std::string run_;
};

TEST_F(PlotTest, OneRunHasItsPictureInItsDirectory) {
  EXPECT_EQ(PlotRuns({.run_dirs = {run_}}), 0);
  EXPECT_THAT(ReadBytes(run_ + "/plot.svg"),
              AllOf(StartsWith("<svg"), HasSubstr(">loss"), HasSubstr(">accuracy"),
                    HasSubstr(">learning rate<"), HasSubstr(">samples per second<"),
                    HasSubstr("a  (completed, 75.00 %)")));
}

int64_t DotsIn(const RunRecord& run) {
  const std::string svg = DrawRuns({run}, PlotAxis::kStep);
  int64_t dots = 0;
  for (size_t at = svg.find("<circle"); at != std::string::npos; at = svg.find("<circle", at + 1)) {
    ++dots;
  }
  return dots;
}

// In the charts of losses and accuracies. The final test evaluation has no dot.
TEST_F(PlotTest, ARunWithAValidationSetHasADotForEachEvaluationOfThat) {
  EXPECT_EQ(DotsIn(ReadRun(run_)), 2);
  const RunRecord split =
      ReadRun(MakeRun("split", {IntervalText(10, 2), ValidationText(10, 0.5), IntervalText(20, 1),
                                ValidationText(20, 0.6), EvaluationText(20, 0.55)}));
  EXPECT_EQ(DotsIn(split), 4);
  EXPECT_THAT(DrawRuns({split}, PlotAxis::kStep),
              AllOf(HasSubstr("dots: evaluations"), HasSubstr("split  (killed, 60.00 %)")));
  EXPECT_EQ(DotsIn(ReadRun(MakeRun("values", {IntervalText(10, 2), LossText(10, "validation", 0.5),
                                              IntervalText(20, 1), LossText(20, "validation", 0.4),
                                              LossText(20, "test", 0.3)}))),
            2);
}

TEST_F(PlotTest, SeveralRunsShareAPicture) {
  const std::string other = MakeRun("b", {IntervalText(10, 3), IntervalText(15, 2)});
  EXPECT_THAT(DrawRuns({ReadRun(run_), ReadRun(other)}, PlotAxis::kEpoch),
              AllOf(HasSubstr("a  (completed"), HasSubstr("b  (killed)"), HasSubstr(">epoch<")));
}

TEST_F(PlotTest, AScalarTakesThePlaceOfTheAccuracy) {
  const auto with = [](std::string line, const std::string& more) {
    line.insert(line.size() - 1, more);
    return line;
  };
  const std::string dir =
      MakeRun("own", {with(IntervalText(10, 2), R"(,"scalars":{"f1":0.5,"nan":null})"),
                      with(IntervalText(20, 1), R"(,"scalars":{"f1":0.75})"),
                      with(LossText(20, "test", 0.5),
                           R"(,"test_top5_accuracy":0.5,"test_scalars":{"f1":0.625})")});
  EXPECT_EQ(PlotRuns({.run_dirs = {dir}, .scalar = "f1"}), 0);
  EXPECT_THAT(ReadBytes(dir + "/plot.svg"), AllOf(HasSubstr(">f1 ("), Not(HasSubstr(">accuracy")),
                                                  HasSubstr(">0.75<"), HasSubstr("<circle")));
  try {
    PlotRuns({.run_dirs = {dir}, .scalar = "f2"});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    EXPECT_THAT(
        error.what(),
        HasSubstr("--scalar f2: no such scalar in these runs; they have: f1, top5_accuracy"));
  }
}

TEST_F(PlotTest, MoreRunsThanTheLegendHolds) {
  EXPECT_THAT(DrawRuns(std::vector<RunRecord>(11, ReadRun(run_)), PlotAxis::kStep),
              HasSubstr("and 3 more runs"));
}

// If a loss diverges, the rest of the curve is still worth looking at.
TEST_F(PlotTest, WhatIsTooLargeForAPictureIsLeftOut) {
  const std::string dir = MakeRun("l", {IntervalText(10, 3), IntervalText(20, 1e308),
                                        IntervalText(30, -1e308), IntervalText(40, 2)});
  EXPECT_EQ(PlotRuns({.run_dirs = {dir}}), 0);
  EXPECT_THAT(ReadBytes(dir + "/plot.svg"),
              AllOf(HasSubstr(">3<"), Not(HasSubstr("nan")), Not(HasSubstr("inf"))));
}

TEST_F(PlotTest, WhatCannotBePlottedIsSaid) {
  const auto code = [&](const std::string& dir, const std::string& output) {
    try {
      PlotRuns({.run_dirs = {dir}, .output = output});
    } catch (const Error& error) {
      return error.code();
    }
    return ExitCode::kOk;
  };
  EXPECT_EQ(code(run_, Dir() + "/x.png"), ExitCode::kUsage);
  EXPECT_EQ(code(Dir(), Dir() + "/x.svg"), ExitCode::kUsage);
  EXPECT_EQ(code(MakeRun("empty", {}), Dir() + "/x.svg"), ExitCode::kUsage);
  EXPECT_EQ(code(run_, Dir() + "/nowhere/x.svg"), ExitCode::kFailure);
}

}  // namespace
}  // namespace muster::testing
