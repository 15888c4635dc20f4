// `muster plot` of run directories.
#include <gmock/gmock-matchers.h>

#include <fstream>
#include <iterator>

#include "common/base/error.h"
#include "launch/plot/plot_command.h"
#include "launch/plot/svg_canvas.h"
#include "tests/launch/runs/run_files.h"

namespace muster::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::string FileText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class PlotTest : public RunFiles {
 protected:
  PlotTest()
      : run_(MakeRun("a", {IntervalText(10, 2), IntervalText(20, 1), EvaluationText(20, 0.75),
                           FinalText(20, "completed")})) {}
  const std::string run_;
};

TEST_F(PlotTest, OneRunHasItsPicturesInItsDirectory) {
  EXPECT_EQ(PlotRuns({.run_dirs = {run_}, .program_folder = MUSTER_BIN_DIR}), 0);
  EXPECT_THAT(FileText(run_ + "/plot.svg"),
              AllOf(StartsWith("<svg"), HasSubstr(">loss"), HasSubstr(">accuracy"),
                    HasSubstr(">learning rate<"), HasSubstr(">images per second<"),
                    HasSubstr("a  (completed, 75.00 %)")));
  EXPECT_THAT(FileText(run_ + "/plot.png"), StartsWith("\x89PNG"));
}

TEST_F(PlotTest, SeveralRunsShareAPicture) {
  const std::string other = MakeRun("b", {IntervalText(10, 3), IntervalText(15, 2)});
  SvgCanvas canvas(kPlotSize.x, kPlotSize.y);
  DrawRuns({ReadRun(run_), ReadRun(other)}, PlotAxis::kEpoch, canvas);
  EXPECT_THAT(canvas.Finish(),
              AllOf(HasSubstr("a  (completed"), HasSubstr("b  (killed)"), HasSubstr(">epoch<")));
}

TEST_F(PlotTest, MoreRunsThanTheLegendHolds) {
  SvgCanvas canvas(kPlotSize.x, kPlotSize.y);
  DrawRuns(std::vector<RunRecord>(11, ReadRun(run_)), PlotAxis::kStep, canvas);
  EXPECT_THAT(canvas.Finish(), HasSubstr("and 3 more runs"));
}

// Of steps that are one, or too near to each other: it once ended the program.
TEST_F(PlotTest, ALineWithoutLengthIsADot) {
  const std::string dir = MakeRun("s", {IntervalText(10, 3), IntervalText(10, 3)});
  EXPECT_EQ(PlotRuns({.run_dirs = {dir}, .program_folder = MUSTER_BIN_DIR}), 0);
  EXPECT_THAT(FileText(dir + "/plot.png"), StartsWith("\x89PNG"));
}

// Of a loss that has gone astray: the rest of the curve is still worth looking at.
TEST_F(PlotTest, WhatIsTooLargeForAPictureIsLeftOut) {
  const std::string dir = MakeRun("l", {IntervalText(10, 3), IntervalText(20, 1e308),
                                        IntervalText(30, -1e308), IntervalText(40, 2)});
  EXPECT_EQ(PlotRuns({.run_dirs = {dir}, .program_folder = MUSTER_BIN_DIR}), 0);
  EXPECT_THAT(FileText(dir + "/plot.svg"),
              AllOf(HasSubstr(">3<"), Not(HasSubstr("nan")), Not(HasSubstr("inf"))));
}

TEST_F(PlotTest, WhatCannotBePlottedIsSaid) {
  const auto plot = [&](const std::string& dir, const std::string& output) {
    return PlotRuns({.run_dirs = {dir}, .output = output, .program_folder = MUSTER_BIN_DIR});
  };
  EXPECT_THROW(plot(run_, Dir() + "/x.jpg"), Error);
  EXPECT_THROW(plot(Dir(), Dir() + "/x.svg"), Error);
  EXPECT_THROW(plot(MakeRun("empty", {}), Dir() + "/x.svg"), Error);
  EXPECT_THROW(plot(run_, Dir() + "/nowhere/x.svg"), Error);
}

}  // namespace
}  // namespace muster::testing
