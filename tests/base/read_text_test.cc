// A text is read from a file or a pipe; what is none is named, and nothing is waited for for ever.
#include "common/base/read_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <thread>

#include "tests/data/temp_dir.h"

namespace muster::testing {
namespace {

using ::testing::HasSubstr;

constexpr ReadTextOptions kShort{.most_bytes = 1 << 20, .patience_s = 0.1};

std::string ErrorOf(const std::string& path) {
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
  EXPECT_THAT(ErrorOf(dir / "none"), HasSubstr("none: cannot be read: No such file"));
  EXPECT_THAT(ErrorOf(dir.string()), HasSubstr("is a directory, expected a file"));
  EXPECT_THAT(ErrorOf("/dev/zero"), HasSubstr("/dev/zero: larger than 1 MiB"));
  const std::string pipe = dir / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(ErrorOf(pipe), HasSubstr("pipe: nothing came for 0.1 s"));
}

}  // namespace
}  // namespace muster::testing
