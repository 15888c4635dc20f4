// What is said at a run's end of how it goes on: commands that can be copied.
#include "launch/job/kept_text.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/data/temp_dir.h"

namespace muster::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(KeptText, NamesInCommandsAreWordsOfAShell) {
  const TempDir parent;
  const std::string path = parent / "a run";
  const RunDir dir = RunDir::Open(path);
  std::ofstream(dir.ConfigPath()) << "run {}";
  const KeptRun run{.dir = dir};
  EXPECT_EQ(GoOnText(std::nullopt, {.dir = dir}),
            path + " holds no checkpoint: the run cannot go on.");
  events::Summary summary;
  summary.set_trouble("the disk is full");
  EXPECT_THAT(TroubleText(summary, {.dir = dir, .by_hand = true}),
              HasSubstr("muster server '" + path + "/config.txtpb' --run-dir DIR"));
  summary.set_checkpoint("somewhere");
  summary.set_checkpoint_step(1200);
  EXPECT_EQ(GoOnText(summary, run),
            path + " holds no checkpoint: the run cannot go on.");  // by now
  std::filesystem::create_directories(path + "/checkpoints/step-00001200-g1");
  EXPECT_EQ(GoOnText(summary, run),
            "muster launch --resume '" + path + "' goes on from step 1,200.");
  std::filesystem::remove_all(path);
  EXPECT_EQ(GoOnText(summary, run),
            path + " was removed while the run went on: the run cannot go on.");
  EXPECT_THAT(
      TroubleText(summary, run),
      AllOf(HasSubstr("cannot go on"), Not(HasSubstr("--resume")), Not(HasSubstr("config.txtpb"))));
}

}  // namespace
}  // namespace muster::testing
