#include "cli/process/line_reader.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace muster {
namespace {

class LineReaderTest : public ::testing::Test {
 protected:
  LineReaderTest() {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    reader_ = LineReader(UniqueFd(ends[0]), 10);
    writer_.Reset(ends[1]);
  }
  void Send(const std::string& text) {
    EXPECT_EQ(::write(writer_.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  std::vector<std::string> Read() {
    std::vector<std::string> lines;
    reader_.Read([&](const std::string& line) { lines.push_back(line); });
    return lines;
  }
  using Lines = std::vector<std::string>;

  LineReader reader_;
  UniqueFd writer_;
};

TEST_F(LineReaderTest, PartsBecomeLines) {
  EXPECT_EQ(Read(), Lines{});
  Send("one\ntw");
  EXPECT_EQ(Read(), Lines{"one"});
  Send("o\n\nthree");
  EXPECT_EQ(Read(), (Lines{"two", ""}));
  EXPECT_FALSE(reader_.at_end());
  writer_.Reset();
  EXPECT_EQ(Read(), Lines{"three"});
  EXPECT_TRUE(reader_.at_end());
  EXPECT_EQ(Read(), Lines{});
}

TEST_F(LineReaderTest, LongLinesAreCut) {
  Send("0123456789\n0123456789a\nnext\n");
  EXPECT_EQ(Read(), (Lines{"0123456789", "0123456789", "next"}));
  Send("abcde");
  EXPECT_EQ(Read(), Lines{});
  Send("fghijkl");
  EXPECT_EQ(Read(), Lines{"abcdefghij"});
  Send("mnopqrstuvwxyz\nafter\n");
  EXPECT_EQ(Read(), Lines{"after"});
}

TEST_F(LineReaderTest, ALongLineWithoutAnEndIsCut) {
  Send("0123456789abc");
  writer_.Reset();
  EXPECT_EQ(Read(), Lines{"0123456789"});
  EXPECT_TRUE(reader_.at_end());
}

}  // namespace
}  // namespace muster
