// Files: only regular files are opened, and text is read from a file or pipe. Nothing waits
// forever.
#include "common/base/file.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "common/base/atomic_file.h"
#include "common/base/error.h"
#include "common/base/file_lock.h"
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

TEST(Umask, DecidesWhoMayWrite) {
  const TempDir dir;
  const mode_t before = ::umask(002);
  const FileLock lock(dir / "lock", LockTerms());
  WriteFileAtomically(dir / "config.txtpb", "");
  ::umask(before);
  for (const char* name : {"lock", "config.txtpb"}) {
    EXPECT_EQ(std::filesystem::status(dir / name).permissions(), std::filesystem::perms(0664))
        << name;
  }
}

TEST(TryLock, ReadersShareAndKeepAWriterOut) {
  const TempDir dir;
  const std::string path = dir / "lock";
  const auto open = [&] { return UniqueFd(::open(path.c_str(), O_RDWR | O_CREAT, 0644)); };
  const UniqueFd one = open(), two = open(), three = open();
  EXPECT_EQ(TryLock(one.get(), LockMode::kShared), Locked::kYes);
  EXPECT_EQ(TryLock(two.get(), LockMode::kShared), Locked::kYes);
  EXPECT_EQ(TryLock(three.get()), Locked::kTaken);
  EXPECT_EQ(TryLock(-1), Locked::kCannot);
  EXPECT_TRUE(IsStillAt(one.get(), path));
  std::filesystem::remove(path);
  EXPECT_FALSE(IsStillAt(one.get(), path));
}

}  // namespace
}  // namespace muster::testing
