// Who has a lock, also while he is only about to say so.
#include "common/base/file_lock.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "common/base/process_identity.h"
#include "tests/data/temp_dir.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

class FileLockTest : public ::testing::Test {
 protected:
  // Has the lock, and says who it is a moment later.
  void LockAndSay(const std::string& before, const std::string& text) {
    file_.Reset(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
    ASSERT_EQ(TryLock(file_.get()), Locked::kYes);
    std::ofstream(path_) << before;
    sayer_ = std::jthread([this, text] {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      std::ofstream(path_) << text;
    });
  }

  const testing::TempDir dir_;
  const std::string path_ = dir_ / "lock";
  UniqueFd file_;
  std::jthread sayer_;
};

std::string Name(pid_t pid) { return fmt::format("pid {} on host {}", pid, HostName()); }

TEST_F(FileLockTest, OneHasItAndIsNamed) {
  FileLock first(path_, 0);
  EXPECT_TRUE(first.held());
  const FileLock second(path_, 0);
  EXPECT_FALSE(second.held());
  EXPECT_EQ(second.holder(), Name(::getpid()));
}

TEST_F(FileLockTest, WhoHasNotSaidSoYetIsWaitedFor) {
  LockAndSay("", Name(::getpid()) + "\n");
  EXPECT_EQ(FileLock(path_, 0).holder(), Name(::getpid()));
}

// The words of one who has ended are not taken for those of the next one.
TEST_F(FileLockTest, TheOneBeforeIsNotNamed) {
  const pid_t ended = ::fork();
  if (ended == 0) ::_exit(0);
  ASSERT_GT(ended, 0);
  ::waitpid(ended, nullptr, 0);
  LockAndSay(Name(ended) + "\n", Name(::getpid()) + "\n");
  EXPECT_EQ(FileLock(path_, 0).holder(), Name(::getpid()));
}

// Longer words of an earlier one that are still behind those of the one who has it.
TEST_F(FileLockTest, TheLineAloneCounts) {
  LockAndSay(Name(::getpid()) + "\nsome longer name\n", Name(::getpid()) + "\n");
  EXPECT_EQ(FileLock(path_, 0).holder(), Name(::getpid()));
}

TEST_F(FileLockTest, AProcessOfAnotherHostIsNamed) {
  LockAndSay("pid 1 on host elsewhere.example.org\n", "pid 1 on host elsewhere.example.org\n");
  EXPECT_EQ(FileLock(path_, 0).holder(), "pid 1 on host elsewhere.example.org");
}

TEST_F(FileLockTest, ReadersShareAndKeepAWriterOut) {
  const auto open = [&] { return UniqueFd(::open(path_.c_str(), O_RDWR | O_CREAT, 0644)); };
  const UniqueFd one = open(), two = open(), three = open();
  EXPECT_EQ(TryLock(one.get(), LockMode::kShared), Locked::kYes);
  EXPECT_EQ(TryLock(two.get(), LockMode::kShared), Locked::kYes);
  EXPECT_EQ(TryLock(three.get()), Locked::kTaken);
  EXPECT_EQ(TryLock(-1), Locked::kCannot);
  EXPECT_TRUE(IsStillAt(one.get(), path_));
  fs::remove(path_);
  EXPECT_FALSE(IsStillAt(one.get(), path_));
}

}  // namespace
}  // namespace muster
