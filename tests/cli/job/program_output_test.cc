#include "cli/job/program_output.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <fstream>

#include "common/base/file.h"
#include "tests/data/temp_dir.h"

namespace muster::testing {
namespace {

class ProgramOutputTest : public ::testing::Test {
 protected:
  void Log(const std::string& text) { std::ofstream(log_, std::ios::app) << text; }
  // What is printed for the text that the log gets.
  std::string Shown(const std::string& text, bool ended = false) {
    Log(text);
    const std::string path = (dir_.path() / "shown").string();
    const UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600));
    {
      Console console(file.get());
      output_.Show(console, ended);
    }
    return ReadFileIfThere(path);
  }

  const TempDir dir_;
  const std::string log_ = (dir_.path() / "worker-0.log").string();
  ProgramOutput output_{log_};
};

TEST_F(ProgramOutputTest, WholeLinesWithoutThoseOfTheHelper) {
  EXPECT_EQ(Shown(""), "");
  EXPECT_EQ(Shown("epoch 0\n2026-01-31 12:00:05.123 worker-0 info: joined\nepo"), "epoch 0\n");
  EXPECT_EQ(Shown("ch 1\n2026-01-31 is a date\n"), "epoch 1\n2026-01-31 is a date\n");
  EXPECT_EQ(Shown("the last"), "");
  EXPECT_EQ(Shown("", /*ended=*/true), "the last\n");
}

TEST_F(ProgramOutputTest, ProgressBarsAndColorsBecomePlainLines) {
  EXPECT_EQ(Shown(" 10 %\r 50 %\r100 %\r\n\x1b[1;31mred\x1b[0m\n"), "100 %\nred\n");
  EXPECT_EQ(Shown("a\tb\b\bloss\t0.5\n"), "a      loss     0.5\n");
}

TEST_F(ProgramOutputTest, WhatAnEarlierProcessPrintedIsNotShownAgain) {
  Log("of an earlier launch\n");
  output_ = ProgramOutput(log_);
  EXPECT_EQ(Shown("of this one\n"), "of this one\n");
}

TEST_F(ProgramOutputTest, AFloodIsCut) {
  const std::string shown = Shown(std::string(3 << 20, 'x') + "\nthe end\n");
  EXPECT_LT(shown.size(), size_t{1} << 20);
  EXPECT_TRUE(shown.starts_with("... "));
  EXPECT_TRUE(shown.ends_with("the end\n"));
}

}  // namespace
}  // namespace muster::testing
