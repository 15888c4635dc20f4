// Files: only regular files are opened, text is read from a file or pipe, and a lock names its
// owner, even if the owner has yet to write its name. Nothing waits forever.
#include "common/base/file.h"

#include <fmt/core.h>
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "common/base/atomic_file.h"
#include "common/base/error.h"
#include "common/base/process.h"
#include "tests/data/temp_dir.h"

namespace muster::testing {
namespace {

using ::testing::HasSubstr;

class PlainFile : public ::testing::Test {
 protected:
  static std::string ErrorOf(const std::string& path, int flags) {
    try {
      (void)OpenPlainFile(path, "a list of names", flags);
      return "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kData);
      return error.what();
    }
  }

  const TempDir dir_;
};

TEST_F(PlainFile, IsReadAndWritten) {
  const std::string path = dir_ / "file";
  const UniqueFd file = OpenPlainFile(path, "a plain file", O_WRONLY | O_CREAT);
  ASSERT_TRUE(file.valid());
  ASSERT_EQ(::write(file.get(), "one\ntwo\n", 8), 8);
  std::ifstream stream = ReadPlainFile(path);
  std::string line;
  EXPECT_TRUE(std::getline(stream, line));
  EXPECT_EQ(line, "one");
}

TEST_F(PlainFile, ThatIsNotThereIsNoError) {
  EXPECT_FALSE(OpenPlainFile(dir_ / "none").valid());
  EXPECT_EQ(errno, ENOENT);
  EXPECT_FALSE(ReadPlainFile(dir_ / "none"));
}

TEST_F(PlainFile, AnythingElseIsNamed) {
  const std::string pipe = dir_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  for (const int flags : {O_RDONLY, O_WRONLY, O_WRONLY | O_CREAT | O_APPEND}) {
    EXPECT_THAT(ErrorOf(pipe, flags), HasSubstr("pipe: is a pipe, expected a list of names"));
    EXPECT_THAT(ErrorOf(dir_.string(), flags), HasSubstr("is a folder"));
    EXPECT_THAT(ErrorOf("/dev/zero", flags), HasSubstr("is a device"));
  }
  const std::string link = dir_ / "link";
  std::filesystem::create_symlink(dir_ / "nothing", link);
  EXPECT_THAT(ErrorOf(link, O_WRONLY | O_CREAT),
              HasSubstr("link: is a symbolic link, which is not"));
  EXPECT_FALSE(std::filesystem::exists(dir_ / "nothing"));
  EXPECT_THAT(ErrorOf("/proc/self/maps", O_RDONLY), HasSubstr("virtual file of the kernel"));
  EXPECT_THROW((void)ReadPlainFile(pipe), Error);
}

constexpr ReadTextOptions kShort{.most_bytes = 1 << 20, .patience_s = 0.1};

std::string TextErrorOf(const std::string& path) {
  try {
    (void)ReadTextFile(path, kShort);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    return error.what();
  }
  return "no error";
}

TEST(ReadText, FilesAndPipes) {
  const TempDir dir;
  const std::string text(200'000, 'x');  // more than a pipe holds
  WriteBytes(dir / "file", text);
  EXPECT_EQ(ReadTextFile(dir / "file"), text);
  WriteBytes(dir / "empty", "");
  EXPECT_EQ(ReadTextFile(dir / "empty"), "");
  EXPECT_EQ(ReadTextFile("/dev/null"), "");
  const std::string pipe = dir / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const std::jthread writer([&] { WriteBytes(pipe, text); });
  EXPECT_EQ(ReadTextFile(pipe), text);
}

TEST(ReadText, WhatIsNoneIsNamed) {
  const TempDir dir;
  EXPECT_THAT(TextErrorOf(dir / "none"), HasSubstr("none: cannot be read: No such file"));
  EXPECT_THAT(TextErrorOf(dir.string()), HasSubstr("is a directory, expected a file"));
  EXPECT_THAT(TextErrorOf("/dev/zero"), HasSubstr("/dev/zero: larger than 1 MiB"));
  const std::string pipe = dir / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(TextErrorOf(pipe), HasSubstr("pipe: no data for 0.1 s"));
}

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

// The name of an earlier owner is not used.
TEST_F(FileLockTest, TheOneBeforeIsNotNamed) {
  const pid_t ended = ::fork();
  if (ended == 0) ::_exit(0);
  ASSERT_GT(ended, 0);
  ::waitpid(ended, nullptr, 0);
  LockAndSay(Name(ended) + "\n", Name(::getpid()) + "\n");
  EXPECT_EQ(FileLock(path_, 0).holder(), Name(::getpid()));
}

// A longer text of an earlier owner may follow the current owner's line.
TEST_F(FileLockTest, TheLineAloneCounts) {
  LockAndSay(Name(::getpid()) + "\nsome longer name\n", Name(::getpid()) + "\n");
  EXPECT_EQ(FileLock(path_, 0).holder(), Name(::getpid()));
}

TEST_F(FileLockTest, AProcessOfAnotherHostIsNamed) {
  LockAndSay("pid 1 on host elsewhere.example.org\n", "pid 1 on host elsewhere.example.org\n");
  EXPECT_EQ(FileLock(path_, 0).holder(), "pid 1 on host elsewhere.example.org");
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
        ::_exit(FileLock(path_, 0).held() ? 0 : 1);
      } catch (const Error&) {
        ::_exit(2);
      }
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WEXITSTATUS(status);
  };
  {
    const FileLock mine(path_, 0);
    ASSERT_EQ(::chmod(path_.c_str(), 0644), 0);
    EXPECT_EQ(as_another(), 1);
  }
  EXPECT_EQ(as_another(), 0);
  ASSERT_EQ(::chmod(path_.c_str(), 0600), 0);
  EXPECT_EQ(as_another(), 2);
}

TEST(Umask, DecidesWhoMayWrite) {
  const TempDir dir;
  const mode_t before = ::umask(002);
  const FileLock lock(dir / "lock", 0);
  WriteFileAtomically(dir / "config.txtpb", "");
  ::umask(before);
  for (const char* name : {"lock", "config.txtpb"}) {
    EXPECT_EQ(std::filesystem::status(dir / name).permissions(), std::filesystem::perms(0664))
        << name;
  }
}

TEST_F(FileLockTest, ReadersShareAndKeepAWriterOut) {
  const auto open = [&] { return UniqueFd(::open(path_.c_str(), O_RDWR | O_CREAT, 0644)); };
  const UniqueFd one = open(), two = open(), three = open();
  EXPECT_EQ(TryLock(one.get(), LockMode::kShared), Locked::kYes);
  EXPECT_EQ(TryLock(two.get(), LockMode::kShared), Locked::kYes);
  EXPECT_EQ(TryLock(three.get()), Locked::kTaken);
  EXPECT_EQ(TryLock(-1), Locked::kCannot);
  EXPECT_TRUE(IsStillAt(one.get(), path_));
  std::filesystem::remove(path_);
  EXPECT_FALSE(IsStillAt(one.get(), path_));
}

}  // namespace
}  // namespace muster::testing
