#include "launch/process/log_tail.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

namespace muster {
namespace {

std::string LastErrorOf(const std::string& text) {
  const std::string path = std::filesystem::temp_directory_path() /
                           ("muster-log-tail-" + std::to_string(::getpid()) + ".log");
  std::ofstream(path) << text;
  const std::string error = LastError(path);
  std::remove(path.c_str());
  return error;
}

TEST(LastErrorTest, IsTheTextOfTheLastErrorLine) {
  EXPECT_EQ(
      LastErrorOf("12:00 server error: the first\n12:01 server error: the second\n12:02 bye\n"),
      "the second");
}

TEST(LastErrorTest, LeavesOutTheExitCode) {
  EXPECT_EQ(LastErrorOf("12:00 server error: exit code 5: too late\n"), "too late");
}

TEST(LastErrorTest, BeginsAtTheFirstErrorOfALine) {
  EXPECT_EQ(LastErrorOf("error: cannot read x: error: exit code 3: gone\n"),
            "cannot read x: error: exit code 3: gone");
}

TEST(LastErrorTest, TakesWholeWords) {
  EXPECT_EQ(LastErrorOf("12:00 server info: terror: none\n"), "");
  EXPECT_EQ(LastErrorOf(""), "");
}

}  // namespace
}  // namespace muster
