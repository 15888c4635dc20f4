// Locks name their holder, even if it has yet to write its name, and hold without flock, too.
#include "common/base/file_lock.h"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "common/base/error.h"
#include "common/base/process.h"
#include "tests/data/temp_dir.h"

namespace muster::testing {
namespace {

class FileLockTest : public ::testing::Test {
 protected:
  // Takes the lock and writes its name shortly afterwards.
  void LockAndSay(const std::string& before, const std::string& text) {
    file_.Reset(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
    ASSERT_EQ(TryLock(file_.get()), Locked::kYes);
    std::ofstream(path_) << before;
    sayer_ = std::jthread([this, text] {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      std::ofstream(path_) << text;
    });
  }

  const TempDir dir_;
  const std::string path_ = dir_ / "lock";
  UniqueFd file_;
  std::jthread sayer_;
};

std::string Name(pid_t pid) { return fmt::format("pid {} on host {}", pid, HostName()); }

TEST_F(FileLockTest, OneHasItAndIsNamed) {
  FileLock first(path_, {});
  EXPECT_TRUE(first.held());
  const FileLock second(path_, {});
  EXPECT_FALSE(second.held());
  EXPECT_EQ(second.holder(), Name(::getpid()));
}

TEST_F(FileLockTest, WhoHasNotSaidSoYetIsWaitedFor) {
  LockAndSay("", Name(::getpid()) + "\n");
  EXPECT_EQ(FileLock(path_, {}).holder(), Name(::getpid()));
}

// The name of an earlier owner is not used.
TEST_F(FileLockTest, TheOneBeforeIsNotNamed) {
  const pid_t ended = ::fork();
  if (ended == 0) ::_exit(0);
  ASSERT_GT(ended, 0);
  ::waitpid(ended, nullptr, 0);
  LockAndSay(Name(ended) + "\n", Name(::getpid()) + "\n");
  EXPECT_EQ(FileLock(path_, {}).holder(), Name(::getpid()));
}

// A longer text of an earlier owner may follow the current owner's line.
TEST_F(FileLockTest, TheLineAloneCounts) {
  LockAndSay(Name(::getpid()) + "\nsome longer name\n", Name(::getpid()) + "\n");
  EXPECT_EQ(FileLock(path_, {}).holder(), Name(::getpid()));
}

TEST_F(FileLockTest, AProcessOfAnotherHostIsNamed) {
  LockAndSay("pid 1 on host elsewhere.example.org\n", "pid 1 on host elsewhere.example.org\n");
  EXPECT_EQ(FileLock(path_, {}).holder(), "pid 1 on host elsewhere.example.org");
}

TEST_F(FileLockTest, AFileThatTheHolderBeforeRemovesIsNoLock) {
  static std::string path;
  static int calls;
  path = path_;
  calls = 0;
  const auto lock = [](int fd, LockMode mode) {
    if (calls++ == 0) std::filesystem::remove(path);
    return TryLock(fd, mode);
  };
  const FileLock one(path_, {.lock = lock});
  ASSERT_TRUE(one.held());
  EXPECT_FALSE(FileLock(path_, {}).held());
}

// In a folder that a group shares, members may often only read the files of others.
TEST_F(FileLockTest, AnotherUsersFileIsALockAsWell) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
  std::filesystem::permissions(dir_.path(), std::filesystem::perms::all);
  // What another user gets: 0 the lock, 1 not, 2 an error.
  const auto as_another = [&] {
    const pid_t child = ::fork();
    if (child == 0) {
      if (::setresuid(12345, 12345, 12345) != 0) ::_exit(3);
      try {
        ::_exit(FileLock(path_, {}).held() ? 0 : 1);
      } catch (const Error&) {
        ::_exit(2);
      }
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WEXITSTATUS(status);
  };
  {
    const FileLock mine(path_, {});
    ASSERT_EQ(::chmod(path_.c_str(), 0644), 0);
    EXPECT_EQ(as_another(), 1);
  }
  EXPECT_EQ(as_another(), 0);
  ASSERT_EQ(::chmod(path_.c_str(), 0600), 0);
  EXPECT_EQ(as_another(), 2);
}

// As on a file system where flock succeeds and keeps nobody out.
LockTerms WithoutFlock(std::chrono::milliseconds silence = std::chrono::seconds(60)) {
  return {.lock = [](int, LockMode) { return Locked::kYes; },
          .beat = std::chrono::milliseconds(10),
          .silence = silence};
}

class LeaseTest : public FileLockTest {
 protected:
  // The lease of a process on another host.
  void Elsewhere(int beat) const {
    std::ofstream(path_ + ".lease-7")
        << "pid 1 on host elsewhere\nstarted 1 in x\nbeat " << beat << "\n";
  }
  bool Exists(const std::string& name) const { return std::filesystem::exists(dir_ / name); }
  // Runs this in a process of its own, whose locks are not released, and returns its exit code.
  template <typename Function>
  pid_t InAnother(const Function& function) const {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(function());
    return child;
  }
  static int CodeOf(pid_t child) {
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
};

TEST_F(LeaseTest, KeepsOthersOutUntilItIsFree) {
  for (int i = 0; i < 2; ++i) {
    const FileLock first(path_, WithoutFlock());
    EXPECT_TRUE(first.held());
    const FileLock second(path_, WithoutFlock());
    EXPECT_FALSE(second.held());
    EXPECT_EQ(second.holder(), Name(::getpid()));
  }
  EXPECT_TRUE(Exists("lock.lease-2"));
  EXPECT_FALSE(Exists("lock.lease-1"));
  FileLock::Remove(path_);
  EXPECT_TRUE(std::filesystem::is_empty(dir_.path()));
}

TEST_F(LeaseTest, FlockNeedsNone) {
  const FileLock lock(path_, {});
  EXPECT_FALSE(Exists("lock.lease-1"));
}

TEST_F(LeaseTest, OfAKilledProcessIsNotHeld) {
  EXPECT_EQ(
      CodeOf(InAnother([&] { return (new FileLock(path_, WithoutFlock()))->held() ? 0 : 1; })), 0);
  EXPECT_TRUE(FileLock(path_, WithoutFlock()).held());
}

TEST_F(LeaseTest, OfAnotherHostIsHeldWhileItIsRefreshed) {
  Elsewhere(0);
  std::atomic<bool> ends = false;
  std::jthread holder([&] {
    for (int beat = 1; !ends; ++beat) {
      Elsewhere(beat);
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
    }
  });
  const FileLock lock(path_, WithoutFlock());
  ends = true;
  holder.join();
  EXPECT_FALSE(lock.held());
  EXPECT_EQ(lock.holder(), "pid 1 on host elsewhere");
  EXPECT_TRUE(FileLock(path_, WithoutFlock(std::chrono::milliseconds(200))).held());
  EXPECT_TRUE(Exists("lock.lease-8"));
  EXPECT_FALSE(Exists("lock.lease-7"));
}

// It was suspended, and another host could not know that it lives.
TEST_F(LeaseTest, AHolderThatLosesItEnds) {
  const pid_t holder = InAnother([&] {
    const FileLock lock(path_, WithoutFlock());
    std::ofstream(dir_ / "held").flush();
    std::this_thread::sleep_for(std::chrono::seconds(40));
    return 0;
  });
  while (!Exists("held")) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  std::ofstream(path_ + ".lease-2") << "pid 1 on host elsewhere\n";
  EXPECT_EQ(CodeOf(holder), static_cast<int>(ExitCode::kFailure));
}

}  // namespace
}  // namespace muster::testing
