#include "cli/process/log_tail.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

namespace muster {
namespace {

// A temporary log with this text.
class Log {
 public:
  explicit Log(const std::string& text)
      : path_(std::filesystem::temp_directory_path() /
              ("muster-log-tail-" + std::to_string(::getpid()) + ".log")) {
    std::ofstream(path_) << text;
  }
  ~Log() { std::remove(path_.c_str()); }
  Log(const Log&) = delete;
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

std::string LastErrorOf(const std::string& text) { return LastError(Log(text).path()); }

TEST(LastErrorTest, IsTheTextOfTheLastErrorLine) {
  EXPECT_EQ(
      LastErrorOf("12:00 server error: the first\n12:01 server error: the second\n12:02 bye\n"),
      "the second");
}

TEST(LastErrorTest, OlderLinesDoNotCount) {
  const std::string old = "server error: of the last run\n";
  const auto begin = static_cast<int64_t>(old.size());
  {
    const Log log(old + "started\n");
    EXPECT_EQ(LastError(log.path()), "of the last run");
    EXPECT_EQ(LastError(log.path(), begin), "");
    EXPECT_EQ(LastLines(log.path(), 5, begin), std::vector<std::string>{"started"});
    EXPECT_EQ(LastError(log.path(), 1000), "");  // it has been truncated since
  }
  EXPECT_EQ(LastError(Log(old + "server error: of this run\n").path(), begin), "of this run");
}

TEST(LastErrorTest, LeavesOutTheExitCode) {
  EXPECT_EQ(LastErrorOf("12:00 server error: exit code 5: too late\n"), "too late");
}

TEST(LastErrorTest, OneExitCodeMayNotCount) {
  const Log log("error: exit code 3: no data\nerror: exit code 7: the server is gone\n");
  EXPECT_EQ(LastError(log.path()), "the server is gone");
  EXPECT_EQ(LastError(log.path(), 0, 7), "no data");
  EXPECT_EQ(LastError(log.path(), 0, 3), "the server is gone");
}

TEST(LastErrorTest, BeginsAtTheFirstErrorOfALine) {
  EXPECT_EQ(LastErrorOf("error: cannot read x: error: exit code 3: gone\n"),
            "cannot read x: error: exit code 3: gone");
}

TEST(LastErrorTest, TakesWholeWords) {
  EXPECT_EQ(LastErrorOf("12:00 server info: terror: none\n"), "");
  EXPECT_EQ(LastErrorOf(""), "");
}

// Terminals also interpret some two-byte characters as commands.
TEST(LastLinesTest, OfOneLongLineTheEnd) {
  EXPECT_EQ(LastLines(Log(std::string(100'000, 'x') + "end").path(), 3),
            std::vector<std::string>{std::string(997, 'x') + "end"});
  EXPECT_EQ(LastLines(Log(std::string(100'000, 'x') + "\r90 %\r91 %\n").path(), 3),
            std::vector<std::string>{"91 %"});
}

TEST(LastLinesTest, AreFitForATerminal) {
  const Log log(
      "first\nsecond \x1b[2J\nthird \xc2\x9b"
      "2J \xff\n" +
      std::string(998, 'a') + "\xc3\xa9\xc3\xa9\n");
  const std::vector<std::string> lines = LastLines(log.path(), 3);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0], "second  [2J");
  EXPECT_EQ(lines[1], "third  2J \xef\xbf\xbd");
  EXPECT_EQ(lines[2], std::string(997, 'a') + "...");
}

}  // namespace
}  // namespace muster
