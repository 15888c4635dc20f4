#include "cli/job/run_dir.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <thread>

#include "common/base/error.h"
#include "tests/data/expect_error.h"
#include "tests/data/temp_dir.h"

namespace muster {
namespace {

using ::testing::HasSubstr;

namespace fs = std::filesystem;

class RunDirTest : public ::testing::Test {
 protected:
  std::string ErrorOfOpen(const std::string& path) {
    try {
      RunDir::Open(path);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kUsage);
      return error.what();
    }
    return "";
  }

  const testing::TempDir temp_;
  const std::string root_ = temp_.string();
};

TEST_F(RunDirTest, NewDirectoriesOfOneSecondDiffer) {
  std::time_t now = std::time(nullptr);
  RunDir first = RunDir::CreateNew(root_ + "/runs", "cifar10", now);
  RunDir second = RunDir::CreateNew(root_ + "/runs", "cifar10", now);
  RunDir third = RunDir::CreateNew(root_ + "/runs", "cifar10", now);
  EXPECT_TRUE(fs::path(first.path()).filename().string().starts_with("cifar10-20"));
  EXPECT_EQ(second.path(), first.path() + "-2");
  EXPECT_EQ(third.path(), first.path() + "-3");
}

TEST_F(RunDirTest, ManyAtOnceNeverShareOne) {
  std::time_t now = std::time(nullptr);
  std::vector<std::string> paths(32);
  {
    std::vector<std::jthread> threads;
    for (std::string& path : paths) {
      threads.emplace_back([&] { path = RunDir::CreateNew(root_, "x", now).path(); });
    }
  }
  EXPECT_EQ(std::set<std::string>(paths.begin(), paths.end()).size(), paths.size());
}

TEST_F(RunDirTest, AnExplicitDirectoryIsMadeWithItsParents) {
  RunDir dir = RunDir::Open(root_ + "/a/b/");
  EXPECT_TRUE(fs::is_directory(root_ + "/a/b"));
  EXPECT_EQ(dir.path(), root_ + "/a/b");
  EXPECT_EQ(dir.WorkerLogPath(3), root_ + "/a/b/worker-3.log");
}

TEST_F(RunDirTest, AnotherRunsMetricsAreRefused) {
  fs::create_directory(root_ + "/old");
  std::ofstream(root_ + "/old/metrics.jsonl") << "{}\n";
  EXPECT_NE(ErrorOfOpen(root_ + "/old").find("already holds the metrics.jsonl"), std::string::npos);
  EXPECT_EQ(fs::file_size(root_ + "/old/metrics.jsonl"), 3u);
}

// The run was killed before its first line of metrics.
TEST_F(RunDirTest, AnotherRunsCheckpointsAreRefused) {
  fs::create_directories(root_ + "/old/checkpoints/step-00000000-g1");
  EXPECT_NE(ErrorOfOpen(root_ + "/old").find("already holds the checkpoints of another run"),
            std::string::npos);
  fs::create_directories(root_ + "/none/checkpoints");
  RunDir::CheckUnused(root_ + "/none");
}

TEST_F(RunDirTest, AFolderOfPhotosOrRunsIsRefused) {
  fs::create_directories(root_ + "/photos/cat");
  EXPECT_MUSTER_ERROR(RunDir::Make(root_ + "/photos", ""), ExitCode::kUsage, HasSubstr("cat"));
  EXPECT_MUSTER_ERROR(RunDir::CheckUnused(root_ + "/photos"), ExitCode::kUsage, HasSubstr("cat"));
  EXPECT_EQ(std::distance(fs::directory_iterator(root_ + "/photos"), {}), 1);
  fs::create_directories(root_ + "/volume/lost+found");
  RunDir::CheckUnused(root_ + "/volume");
}

// Its run_id would stop the other run from writing checkpoints.
TEST_F(RunDirTest, ADirectoryInsideAnotherRunIsRefused) {
  fs::create_directories(root_ + "/old/checkpoints");
  std::ofstream(root_ + "/old/metrics.jsonl") << "{}\n";
  RunDir::CheckUnused(root_ + "/old/new");  // without a config, the metrics are not of a run
  std::ofstream(root_ + "/old/config.txtpb") << "run { steps: 1 }\n";
  fs::create_directory_symlink(root_ + "/old/checkpoints", root_ + "/link");
  for (const char* const name : {"/old/new", "/old/checkpoints/", "/old/checkpoints/step/new",
                                 "/link", "/none/../old/checkpoints"}) {
    for (const auto& open : {std::function<void()>([&] { RunDir::Make(root_ + name, ""); }),
                             std::function<void()>([&] { RunDir::CheckUnused(root_ + name); })}) {
      try {
        open();
        ADD_FAILURE() << name;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::kUsage);
        EXPECT_NE(std::string(error.what())
                      .find("inside the directory of another run, " +
                            fs::canonical(root_ + "/old").native() + ";"),
                  std::string::npos)
            << error.what();
      }
    }
  }
  EXPECT_FALSE(fs::exists(root_ + "/old/new"));
  EXPECT_FALSE(fs::exists(root_ + "/old/checkpoints/step"));
  RunDir::CheckUnused(root_ + "/new");
  // The folder of a config, with the output of a command.
  std::ofstream(root_ + "/config.txtpb") << "run { steps: 1 }\n";
  std::ofstream(root_ + "/server.log") << "Listening\n";
  RunDir::CheckUnused(root_ + "/new");
  // Killed before its first line of metrics.
  fs::create_directories(root_ + "/checkpoints/step-00000000-g1");
  EXPECT_THROW(RunDir::CheckUnused(root_ + "/new"), Error);
}

TEST_F(RunDirTest, MetricsWithoutALineAreOfNoRun) {
  fs::create_directory(root_ + "/failed");
  std::ofstream(root_ + "/failed/metrics.jsonl").close();
  RunDir::CheckUnused(root_ + "/failed");
  EXPECT_TRUE(fs::exists(root_ + "/failed/metrics.jsonl"));
  EXPECT_EQ(ErrorOfOpen(root_ + "/failed"), "");
  EXPECT_FALSE(fs::exists(root_ + "/failed/metrics.jsonl"));  // created by the server
  // Only a regular file is removed. The target of a link may belong to someone else.
  std::ofstream(root_ + "/elsewhere").close();
  fs::create_symlink(root_ + "/elsewhere", root_ + "/failed/metrics.jsonl");
  EXPECT_NE(ErrorOfOpen(root_ + "/failed").find("already holds"), std::string::npos);
}

TEST_F(RunDirTest, ADirectoryInUseIsRefused) {
  RunDir dir = RunDir::Open(root_ + "/mine");
  EXPECT_NE(ErrorOfOpen(root_ + "/mine").find("in use"), std::string::npos);
}

// Whoever controls the directory, or a link to it, decides where files of the run lead.
TEST_F(RunDirTest, ADirectoryOfAnotherUserIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to give files away";
  constexpr uid_t kOther = 12345;
  const std::string dir = root_ + "/theirs", link = root_ + "/link";
  fs::create_directory(dir);
  const auto give = [&](gid_t group, mode_t mode) {
    ASSERT_EQ(::chown(dir.c_str(), kOther, group), 0);
    ASSERT_EQ(::chmod(dir.c_str(), mode), 0);
  };
  give(kOther, 0777);
  EXPECT_NE(ErrorOfOpen(dir).find("theirs belongs to user 12345 and is not shared"),
            std::string::npos);
  EXPECT_TRUE(fs::is_empty(dir));
  give(::getegid(), 0755);
  EXPECT_NE(ErrorOfOpen(dir), "");
  give(::getegid(), 0775);
  EXPECT_EQ(ErrorOfOpen(dir), "");
  fs::create_symlink(root_ + "/mine", link);
  fs::create_directory(root_ + "/mine");
  EXPECT_EQ(ErrorOfOpen(link), "");
  ASSERT_EQ(::lchown(link.c_str(), kOther, kOther), 0);
  EXPECT_NE(ErrorOfOpen(link), "");
}

TEST_F(RunDirTest, PathsThatCannotBe) {
  std::ofstream(root_ + "/file") << "x";
  EXPECT_NE(ErrorOfOpen(root_ + "/file/below").find("cannot create"), std::string::npos);
  EXPECT_NE(ErrorOfOpen(root_ + "/file").find("cannot create"), std::string::npos);
  EXPECT_NE(ErrorOfOpen("/proc/muster").find("cannot create"), std::string::npos);
}

TEST_F(RunDirTest, DiscardTakesBackOnlyWhatItMade) {
  RunDir made = RunDir::Open(root_ + "/made");
  std::ofstream(made.ConfigPath()) << "x";
  made.Discard();
  EXPECT_FALSE(fs::exists(root_ + "/made"));

  fs::create_directory(root_ + "/there");
  RunDir found = RunDir::Open(root_ + "/there");
  found.Discard();
  EXPECT_TRUE(fs::exists(root_ + "/there"));

  RunDir filled = RunDir::Open(root_ + "/filled");
  std::ofstream(root_ + "/filled/notes") << "x";
  filled.Discard();
  EXPECT_TRUE(fs::exists(root_ + "/filled/notes"));
}

TEST(RunNameTest, FromTheConfig) {
  EXPECT_EQ(RunName("configs/cifar10.txtpb"), "cifar10");
  EXPECT_EQ(RunName("/x/cifar10-no-lrn.v2.txtpb"), "cifar10-no-lrn.v2");
  EXPECT_EQ(RunName("runs/cifar10-20250131-120000/config.txtpb"), "cifar10");
  EXPECT_EQ(RunName("runs/cifar10-20250131-120000-3/config.txtpb"), "cifar10");
  EXPECT_EQ(RunName("runs/mine/config.txtpb"), "mine");
}

}  // namespace
}  // namespace muster
