// `muster plot` of run directories.
#include <fmt/core.h>
#include <gmock/gmock-matchers.h>

#include <cstdlib>
#include <filesystem>

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
  static ExitCode CodeOf(const PlotArguments& arguments) {
    try {
      PlotRuns(arguments);
    } catch (const Error& error) {
      return error.code();
    }
    return ExitCode::kOk;
  }
  const std::string run_;
};

int64_t Count(const std::string& text, const std::string& part) {
  int64_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST_F(PlotTest, OneRunHasItsPictureInItsDirectory) {
  EXPECT_EQ(PlotRuns({.dirs = {run_}}), 0);
  EXPECT_THAT(
      ReadBytes(run_ + "/plot.svg"),
      AllOf(StartsWith("<svg"), HasSubstr(">loss<"), HasSubstr(">accuracy, %<"),
            HasSubstr(">learning rate<"), Not(HasSubstr(">samples per second<")),
            HasSubstr(">a (75.00 %)<"), HasSubstr(">training, means since the point before<")));
}

// One in the key, and one for each evaluation in the panels of losses and accuracies. The final
// test evaluation has none.
TEST_F(PlotTest, ARunWithAValidationSetHasADotForEachEvaluationOfThat) {
  const auto dots = [](const RunRecord& run) { return Count(DrawRuns({run}), "<circle"); };
  EXPECT_EQ(dots(ReadRun(run_)), 1 + 2);
  const RunRecord split =
      ReadRun(MakeRun("split", {IntervalText(10, 2), ValidationText(10, 0.5), IntervalText(20, 1),
                                ValidationText(20, 0.6), EvaluationText(20, 0.55)}));
  EXPECT_EQ(dots(split), 1 + 4);
  EXPECT_THAT(DrawRuns({split}),
              AllOf(HasSubstr(">validation<"), HasSubstr(">split (killed, 60.00 %)<")));
  EXPECT_EQ(dots(ReadRun(MakeRun("values", {IntervalText(10, 2), LossText(10, "validation", 0.5),
                                            IntervalText(20, 1), LossText(20, "validation", 0.4),
                                            LossText(20, "test", 0.3)}))),
            1 + 2);
}

class SeriesTest : public PlotTest {
 protected:
  // A completed run whose config differs only in the rate and the seed.
  std::string MakeSeed(const std::string& name, double rate, int seed, double loss) {
    const std::string dir = MakeRun(
        name, {IntervalText(10, loss), EvaluationText(10, 0.5), FinalText(10, "completed")});
    Write(name + "/config.txtpb",
          fmt::format(
              "run {{ seed: {} epochs: 1 global_batch: 4 dir: \"{}\" }} data {{ format: SYNTHETIC "
              "synthetic {{ height: 1 width: 1 channels: 1 classes: 2 train_samples: 4 "
              "test_samples: 4 }} }} "
              "model {{ layer {{ name: \"a\" dense {{ units: 2 }} }} layer {{ name: \"b\" "
              "softmax_cross_entropy {{}} }} }} learning_rate {{ base: {} }}",
              seed, dir, rate));
    return dir;
  }
  std::string Plot(PlotArguments arguments) {
    arguments.output = Dir() + "/x.svg";
    EXPECT_EQ(PlotRuns(arguments), 0);
    return ReadBytes(arguments.output);
  }
};

TEST_F(SeriesTest, SeedsOfOneConfigAreAMeanWithABand) {
  for (const int seed : {1, 2, 3}) MakeSeed(fmt::format("s/slow/seed-{}", seed), 0.1, seed, seed);
  MakeSeed("s/fast-1", 0.5, 1, 1);
  MakeSeed("s/fast-2", 0.5, 2, 2);
  MakeSeed("s/fast-again", 0.5, 2, 2);  // no other seed
  MakeRun("s/begun", {});
  const std::string dir = Dir() + "/s";
  const char* const bar = "stroke-width=\"3\" stroke-opacity=\"0.2\"";  // of the only evaluation
  EXPECT_THAT(Plot({.dirs = {dir}, .labels = {"fast=a = b"}}),
              AllOf(HasSubstr(">slow (n = 3, mean 50.00 %)<"), HasSubstr(">a = b (n = 2)<"),
                    HasSubstr(">fast-again (50.00 %)<"), HasSubstr(bar)));
  EXPECT_THAT(
      Plot({.dirs = {dir}, .singly = true}),
      AllOf(HasSubstr(">slow/seed-3 (50.00 %)<"), Not(HasSubstr("n = ")), Not(HasSubstr(bar))));
  EXPECT_THAT(Plot({.dirs = {dir + "/slow"}}), HasSubstr(">slow (n = 3"));
  for (const int seed : {1, 2, 3, 4}) {  // two series whose names begin alike
    MakeSeed(fmt::format("t/smoke-2026-{}", seed), seed < 3 ? 0.1 : 0.5, seed, seed);
  }
  EXPECT_THAT(Plot({.dirs = {Dir() + "/t"}}),
              AllOf(HasSubstr(">smoke-2026-1 (n = 2"), HasSubstr(">smoke-2026-3 (n = 2")));
  for (const int seed : {1, 2}) {  // of each, another part of the data was measured
    const std::string name = fmt::format("m/own-{}", seed);
    std::string text = ReadBytes(MakeSeed(name, 0.1, seed, seed) + "/config.txtpb");
    text.insert(text.find("data {") + 6, fmt::format(" preprocess {{ mean: {} }}", seed));
    Write(name + "/config.txtpb",
          "data { preprocess { measure_mean_stddev: false } } resolved { " + text + " }");
  }
  EXPECT_THAT(Plot({.dirs = {Dir() + "/m"}}), HasSubstr(">own (n = 2"));
  MakeSeed("lr/lr", 0.5, 1, 1);
  MakeSeed("lr/lr=0.1", 0.1, 1, 1);
  EXPECT_THAT(Plot({.dirs = {Dir() + "/lr"}, .labels = {"lr=0.1=low"}}),
              AllOf(HasSubstr(">lr (50.00 %)<"), HasSubstr(">low<")));
}

TEST_F(PlotTest, ProgramsHavePanelsForTheirScalars) {
  const auto with = [](std::string line, const std::string& more) {
    line.insert(line.size() - 1, more);
    return line.replace(line.find("\"train_accuracy\":0.5,"), 21, "");
  };
  const std::string dir = MakeRun(
      "own",
      {with(IntervalText(10, 2), R"(,"scalars":{"f1":0.5,"nan":null,"accuracy":0.25})"),
       with(LossText(20, "test", 0.5), R"(,"test_scalars":{"f1":0.625,"accuracy":0.75,"top":7})")});
  EXPECT_EQ(
      PlotRuns({.dirs = {dir},
                .look = {.title = "a & b", .panels = {"f1", "samples_per_second"}, .width = 300}}),
      0);
  EXPECT_THAT(
      ReadBytes(dir + "/plot.svg"),
      AllOf(HasSubstr(">f1<"), HasSubstr(">samples per second<"), Not(HasSubstr(">accuracy")),
            HasSubstr(">a &amp; b<"), HasSubstr("width=\"300\""), HasSubstr("<circle")));
  EXPECT_THAT(DrawRuns({ReadRun(dir)}), AllOf(HasSubstr(">accuracy, %<"), HasSubstr(">60<")));
}

TEST_F(PlotTest, MoreRunsThanTheLegendHolds) {
  EXPECT_THAT(DrawRuns(std::vector<RunRecord>(11, ReadRun(run_)), PlotAxis::kEpoch),
              AllOf(HasSubstr("and 3 more"), HasSubstr(">epoch<")));
}

TEST_F(PlotTest, RunsOfOneNameAreToldApartAndThoseWithoutAnIntervalLeftOut) {
  const std::string other = MakeRun("more/a", {IntervalText(10, 2)}), empty = MakeRun("b", {});
  EXPECT_EQ(PlotRuns({.dirs = {run_, other, empty}, .output = Dir() + "/x.svg"}), 0);
  EXPECT_THAT(ReadBytes(Dir() + "/x.svg"),
              AllOf(HasSubstr(">" + run_ + " (75.00 %)<"), HasSubstr(">" + other + " ("),
                    Not(HasSubstr(">b"))));
}

// Stands in for rsvg-convert.
TEST_F(PlotTest, OtherFormatsComeFromAConverter) {
  const std::string path = std::getenv("PATH");
  const auto plot = [&](const std::string& script) {
    if (!script.empty()) {
      Write("rsvg-convert", "#!/bin/sh\n" + script);
      std::filesystem::permissions(Dir() + "/rsvg-convert", std::filesystem::perms::owner_all);
    }
    ::setenv("PATH", Dir().c_str(), 1);
    const ExitCode code = CodeOf({.dirs = {run_}, .output = Dir() + "/x.pdf"});
    ::setenv("PATH", path.c_str(), 1);
    return code;
  };
  EXPECT_EQ(plot(""), ExitCode::kUsage);
  EXPECT_EQ(plot("echo broken >&2; exit 3"), ExitCode::kFailure);
  EXPECT_EQ(plot("exit 0"), ExitCode::kFailure) << "no picture";
  EXPECT_FALSE(std::filesystem::exists(Dir() + "/x.pdf"));
  EXPECT_EQ(plot("echo \"$@\"; exec /bin/cat"), ExitCode::kOk);
  EXPECT_THAT(ReadBytes(Dir() + "/x.pdf"), StartsWith("--format pdf\n<svg"));
}

// If a loss diverges, the rest of the curve is still worth looking at.
TEST_F(PlotTest, WhatIsTooLargeForAPictureIsLeftOut) {
  const std::string dir = MakeRun("l", {IntervalText(10, 3), IntervalText(20, 1e308),
                                        IntervalText(30, -1e308), IntervalText(40, 2)});
  EXPECT_EQ(PlotRuns({.dirs = {dir}}), 0);
  EXPECT_THAT(ReadBytes(dir + "/plot.svg"),
              AllOf(HasSubstr(">3<"), Not(HasSubstr("nan")), Not(HasSubstr("inf"))));
}

TEST_F(PlotTest, WhatCannotBePlottedIsSaid) {
  const auto code = [&](const std::string& dir, const std::string& output) {
    return CodeOf({.dirs = {dir}, .output = output});
  };
  EXPECT_EQ(code(run_, Dir() + "/x.jpg"), ExitCode::kUsage);
  EXPECT_EQ(code(Dir() + "/none", Dir() + "/x.svg"), ExitCode::kUsage);
  const std::string empty = MakeRun("empty/run", {});
  EXPECT_EQ(code(empty, Dir() + "/x.svg"), ExitCode::kUsage);
  EXPECT_EQ(code(Dir() + "/empty", Dir() + "/x.svg"), ExitCode::kUsage);
  EXPECT_EQ(code(run_, Dir() + "/nowhere/x.svg"), ExitCode::kFailure);
  EXPECT_EQ(CodeOf({.dirs = {run_}, .look = {.panels = {"f2"}}}), ExitCode::kUsage);
  EXPECT_EQ(CodeOf({.dirs = {run_}, .labels = {"b=B"}}), ExitCode::kUsage);
}

}  // namespace
}  // namespace muster::testing
