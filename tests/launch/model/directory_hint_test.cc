// Somebody gives another directory than that of a run: the message names the one that he meant.
#include "launch/model/directory_hint.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "common/base/error.h"
#include "launch/model/moved_run.h"
#include "launch/model/output_place.h"
#include "proto/config.pb.h"
#include "tests/launch/runs/run_files.h"

namespace muster::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

class DirectoryHint : public RunFiles {
 protected:
  void MakeCheckpoint(const std::string& path) {
    fs::create_directories(Dir() + "/" + path);
    Write(path + "/state.pb", "");
  }
};

TEST_F(DirectoryHint, ASeriesHasRuns) {
  const std::string first =
      MakeRun("s/seed-2", {EvaluationText(90, 0.25), FinalText(100, "completed")});
  const std::string second =
      MakeRun("s/seed-10", {EvaluationText(90, 0.75), FinalText(100, "completed")});
  const std::string third = MakeRun("s/seed-11", {FinalText(50, "interrupted")});
  const std::string series = Dir() + "/s";
  EXPECT_THAT(HintForWeights(series),
              AllOf(HasSubstr(series + ": is a series of runs (--repeat)"),
                    HasSubstr(first + " (25.00 %), " + second + " (75.00 %), " + third),
                    EndsWith("the best is " + second)));
  EXPECT_THAT(HintForResume(series),
              AllOf(HasSubstr("resumed one by one"),
                    EndsWith("not completed are " + third + " (interrupted at step 50 of 100)"),
                    Not(HasSubstr(first))));
  fs::remove_all(third);
  EXPECT_THAT(HintForResume(series), EndsWith("all of them are completed"));
}

TEST_F(DirectoryHint, AFolderOfRuns) {
  const std::string run = MakeRun("runs/a", {FinalText(50, "interrupted")});
  EXPECT_EQ(HintForWeights(Dir() + "/runs"),
            Dir() + "/runs: is no run, but holds some: give one of them: " + run);
  EXPECT_THAT(HintForResume(Dir() + "/runs"), HasSubstr(run + " (interrupted at step 50 of 100)"));
  EXPECT_EQ(HintForWeights(run), "");
  EXPECT_EQ(HintForWeights(Dir() + "/nowhere"), "");
  EXPECT_EQ(HintForResume(Dir() + "/nowhere"), "");
}

TEST_F(DirectoryHint, TheCheckpointsOfARun) {
  const std::string run = MakeRun("a", {IntervalText(50, 1)}), folder = run + "/checkpoints";
  MakeCheckpoint("a/checkpoints/step-00000040-g1-evaluated");
  MakeCheckpoint("a/checkpoints/step-00000050-g1");
  EXPECT_THAT(HintForWeights(folder), AllOf(HasSubstr("give the run, " + run + ","),
                                            EndsWith(folder + "/step-00000050-g1")));
  EXPECT_THAT(HintForResume(folder), EndsWith("expected the run: --resume " + run));
  EXPECT_THAT(HintForResume(folder + "/step-00000050-g1"),
              EndsWith("--resume " + run + " goes on from the newest one, step-00000050-g1"));
  EXPECT_THAT(HintForResume(folder + "/step-00000040-g1-evaluated"),
              AllOf(HasSubstr("--resume " + run + " goes on from the newest one, step-00000050-g1"),
                    HasSubstr("cp -r " + run + " COPY"), HasSubstr("--resume COPY")));
  fs::rename(folder + "/step-00000050-g1", Dir() + "/step-00000050-g1");
  EXPECT_THAT(HintForResume(Dir() + "/step-00000050-g1"),
              AllOf(HasSubstr("is a checkpoint by itself"), HasSubstr("--initial-weights")));
}

TEST_F(DirectoryHint, WhereAFileIsNeeded) {
  const std::string run = MakeRun("a", {IntervalText(50, 1)});
  MakeCheckpoint("a/checkpoints/step-00000050-g1");
  EXPECT_THAT(HintForFile(run), HasSubstr("`muster export " + run + " --format safetensors OUT`"));
  EXPECT_THAT(HintForFile(run + "/checkpoints/step-00000050-g1"), HasSubstr("is a checkpoint: "));
  EXPECT_THAT(HintForFile(run + "/checkpoints"), HasSubstr("give the run, " + run));
  Write("a/model.safetensors", "");
  EXPECT_THAT(HintForFile(run), EndsWith("its weights are " + run + "/model.safetensors"));
  EXPECT_EQ(HintForFile(run + "/model.safetensors"), "");
  fs::create_directory(Dir() + "/empty");
  EXPECT_EQ(HintForFile(Dir() + "/empty"), "");
}

TEST_F(DirectoryHint, DataThatWereMovedWithTheRun) {
  MakeRun("new/runs/a", {IntervalText(1, 1)});
  config::Config config;
  config.mutable_run()->set_dir(Dir() + "/old/runs/a");
  config.mutable_data()->set_dir(Dir() + "/old/data");
  EXPECT_EQ(MovedDataHint(config, Dir() + "/new/runs/a"), "");
  fs::create_directory(Dir() + "/new/data");
  EXPECT_THAT(MovedDataHint(config, Dir() + "/new/runs/a"),
              EndsWith("--data " + Dir() + "/new/data"));
  fs::create_directories(Dir() + "/old/data");  // they are where they were
  EXPECT_EQ(MovedDataHint(config, Dir() + "/new/runs/a"), "");
  EXPECT_TRUE(IsConfigOfRun(Dir() + "/new/runs/a/config.txtpb"));
  Write("new/config.txtpb", "");
  EXPECT_FALSE(IsConfigOfRun(Dir() + "/new/config.txtpb"));
}

using OutputPlace = DirectoryHint;

TEST_F(OutputPlace, WhereNoFileCanBeWritten) {
  const auto error = [](const std::string& out, ExitCode code, bool force = true) -> std::string {
    try {
      CheckOutputPlace(out, force);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(error("", ExitCode::kUsage), HasSubstr("expected the name of a file"));
  EXPECT_THAT(error("-", ExitCode::kUsage), HasSubstr("expected the name of a file"));
  EXPECT_THAT(error(Dir(), ExitCode::kUsage), HasSubstr("is a folder"));
  EXPECT_THAT(error(Dir() + "/no/x.npz", ExitCode::kFailure),
              HasSubstr(Dir() + "/no is not there; make the folder first"));
  Write("file", "");
  EXPECT_THAT(error(Dir() + "/file/x.npz", ExitCode::kFailure), HasSubstr("/file is no folder"));
  EXPECT_EQ(error(Dir() + "/x.npz", ExitCode::kOk, /*force=*/false), "no error");
  // A link that leads nowhere would be replaced, too.
  fs::create_symlink("nowhere", Dir() + "/link");
  EXPECT_THAT(error(Dir() + "/link", ExitCode::kUsage, /*force=*/false),
              AllOf(HasSubstr("a symbolic link to nowhere"), HasSubstr("--force")));
  EXPECT_EQ(error(Dir() + "/link", ExitCode::kOk), "no error");
}

}  // namespace
}  // namespace muster::testing
