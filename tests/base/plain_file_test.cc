// Only a plain file is opened; anything else is named at once, and nothing is waited for.
#include "common/base/plain_file.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>

#include "common/base/error.h"
#include "tests/data/temp_dir.h"

namespace muster {
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

  const testing::TempDir dir_;
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
  EXPECT_THAT(ErrorOf("/proc/self/maps", O_RDONLY), HasSubstr("file of the kernel's"));
  EXPECT_THROW((void)ReadPlainFile(pipe), Error);
}

}  // namespace
}  // namespace muster
