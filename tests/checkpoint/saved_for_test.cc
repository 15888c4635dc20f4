// Whose things a checkpoint.save_to keeps: of a run, a run that was moved, a copy, another one.
#include "common/checkpoint/saved_for.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <fstream>

#include "common/base/error.h"
#include "common/checkpoint/run_mark.h"
#include "tests/checkpoint/some_run.h"
#include "tests/data/temp_dir.h"

namespace muster {
namespace {

namespace fs = std::filesystem;
using testing::kOtherRun;
using testing::kSomeRun;

class SavedForTest : public ::testing::Test {
 protected:
  SavedForTest() { MarkSavedFor(Folder(), {kSomeRun, Run("a")}); }

  std::string Folder() const { return dir_ / "saved"; }
  std::string Run(const std::string& name) const { return dir_ / name; }
  // A run's directory; without an id nothing of it could be kept there.
  void Make(const std::string& name, const std::string& id, const std::string& was = "") const {
    fs::create_directories(Run(name));
    if (!id.empty()) testing::WriteBytes(fs::path(Run(name)) / kRunIdFile, id);
    testing::WriteBytes(fs::path(Run(name)) / "config.txtpb",
                        "unheard_of: 1\nrun { dir: \"" + Run(was.empty() ? name : was) +
                            "\" }\ncheckpoint { save_to: \"" + Folder() + "\" }\n");
  }
  bool Keeps(const std::string& name) const { return KeepsThingsOf(Run(name), Folder()); }

  testing::TempDir dir_;
};

TEST_F(SavedForTest, ItIsReadAsItIsWritten) {
  EXPECT_EQ(SavedForIn(Folder()), (SavedFor{kSomeRun, Run("a")}));
  EXPECT_EQ(testing::ReadBytes(fs::path(Folder()) / kSavedForFile),
            kSomeRun + std::string("\n") + Run("a") + "\n");
  for (const std::string& other :
       {std::string(), std::string("\n"), std::string(kSomeRun), kSomeRun + std::string("\n"),
        kSomeRun + std::string("\nruns/a\n"), kSomeRun + std::string("\n/runs/a"),
        std::string("x\n/runs/a\n")}) {
    testing::WriteBytes(fs::path(Folder()) / kSavedForFile, other);
    EXPECT_EQ(SavedForIn(Folder()), std::nullopt) << other;
  }
}

TEST_F(SavedForTest, OfARun) {
  Make("a", kSomeRun);
  EXPECT_TRUE(Keeps("a"));
  EXPECT_TRUE(Keeps("a/../a"));
  EXPECT_FALSE(Keeps("b"));
  EXPECT_FALSE(KeepsThingsOf(Run("a"), ""));
  EXPECT_FALSE(KeepsThingsOf(Run("a"), Run("a")));
  Make("a", kOtherRun);  // begun there since
  EXPECT_FALSE(Keeps("a"));
}

TEST_F(SavedForTest, OfARunThatLeftNoIdInItsDirectory) {
  Make("a", "");
  EXPECT_TRUE(Keeps("a"));
  Make("b", "", "a");
  EXPECT_FALSE(Keeps("b")) << "a copy";
  fs::remove_all(Run("a"));
  EXPECT_TRUE(Keeps("b")) << "it was moved";
  Make("c", "");
  EXPECT_FALSE(Keeps("c")) << "another run";
}

TEST_F(SavedForTest, OfARunThatWasMovedAndOfACopy) {
  Make("a", kSomeRun);
  Make("b", kSomeRun, "a");
  EXPECT_FALSE(Keeps("b")) << "a copy";
  fs::remove_all(Run("a"));
  EXPECT_TRUE(Keeps("b"));
  Make("a", kOtherRun);
  EXPECT_TRUE(Keeps("b")) << "another run is where it was";
  EXPECT_FALSE(Keeps("a"));
  MarkSavedFor(Folder(), {kSomeRun, Run("b")});
  EXPECT_EQ(SavedForIn(Folder())->run_dir, Run("b"));
  // One that has its id from what lies in the folder.
  fs::remove_all(Run("a"));
  Make("a", "");
  MarkSavedFor(Folder(), {kSomeRun, Run("a")});
  EXPECT_FALSE(Keeps("b"));
}

TEST_F(SavedForTest, ThingsOfAnotherRunAreLeft) {
  Make("a", kSomeRun);
  Make("b", kOtherRun);
  EXPECT_EQ(ThingOfARunIn(Folder()), "") << "the mark alone";
  MarkSavedFor(Folder(), {kOtherRun, Run("b")});
  EXPECT_TRUE(Keeps("b"));
  testing::WriteBytes(fs::path(Folder()) / "best.safetensors", "whatever");
  EXPECT_EQ(ThingOfARunIn(Folder()), "best.safetensors");
  EXPECT_THROW(MarkSavedFor(Folder(), {kSomeRun, Run("a")}), Error);
  EXPECT_TRUE(Keeps("b"));
  fs::remove(fs::path(Folder()) / kSavedForFile);  // nobody's, so nobody may take it
  EXPECT_FALSE(Keeps("b"));
  EXPECT_THROW(MarkSavedFor(Folder(), {kOtherRun, Run("b")}), Error);
}

}  // namespace
}  // namespace muster
