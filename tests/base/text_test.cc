// Lists of numbers, and displaying untrusted text.
#include "common/base/text.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "common/base/error.h"
#include "common/base/leading_zero.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(NumberList, NumbersAndRangesInTheirOrderEachOnce) {
  EXPECT_THAT(ParseNumberList("--samples", "17", 18), ElementsAre(17));
  EXPECT_THAT(ParseNumberList("--samples", "17,0-2,1,5-5", 18), ElementsAre(17, 0, 1, 2, 5));
}

TEST(NumberList, WhatIsNone) {
  for (const char* const text : {"", ",", "1,", "a", "-1", "3-", "-", "5-3", "1-2-3", "1 ,2", "+1",
                                 "99999999999999999999"}) {
    try {
      (void)ParseNumberList("--samples", text, 10);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kUsage);
      EXPECT_THAT(error.what(), HasSubstr("as in 0-9,17")) << text;
    }
  }
}

TEST(NumberList, ALeadingZeroCouldMeanOctal) {
  for (const char* const text : {"07", "0-010", "1,010-11"}) {
    try {
      (void)ParseNumberList("--samples", text, 100);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("leave out the leading zero")) << text;
    }
  }
  for (const char* const text : {"", "0", "-0", "0.5", "10", "0x10", "a01"}) {
    EXPECT_FALSE(HasLeadingZero(text)) << text;
  }
  EXPECT_TRUE(HasLeadingZero(" -010"));
}

// Rejected before a huge list is created.
TEST(NumberList, BeyondTheEnd) {
  try {
    (void)ParseNumberList("--samples", "3,0-9000000000000000000", 10);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("expected numbers from 0 to 9, got 9,000,"));
  }
}

TEST(ValidUtf8, KeepsCharactersAndReplacesTheRest) {
  const std::string valid = "a\u00e4\u20ac\U0001F600\u0000";
  EXPECT_EQ(ValidUtf8(valid), valid);
  EXPECT_EQ(ValidUtf8(""), "");
  EXPECT_EQ(ValidUtf8("\x80 \xc3"), "\ufffd \ufffd");
  EXPECT_EQ(ValidUtf8("\xc0\xaf"), "\ufffd\ufffd");  // an overlong encoding
  EXPECT_EQ(ValidUtf8("\xe0\x80\xaf"), "\ufffd\ufffd\ufffd");
  EXPECT_EQ(ValidUtf8("\xf4\x90\x80\x80"), "\ufffd\ufffd\ufffd\ufffd");  // beyond U+10FFFF
  EXPECT_EQ(ValidUtf8("\xe2\x82"
                      "b"),
            "\ufffd\ufffd"
            "b");
}

TEST(Shown, NothingReachesATerminalRaw) {
  EXPECT_EQ(Shown("a\u00e4 \u20ac\\"), "a\u00e4 \u20ac\\");
  EXPECT_EQ(Shown("\x1b[31m\n\t\r\x7f\u009b\xe9"), "\\x1b[31m\\n\\t\\r\\x7f\\u009b\\xe9");
  EXPECT_EQ(Shown(std::string("a\0b", 3)), "a\\x00b");
}

TEST(Shown, WhatIsTooLongIsCutBetweenCharacters) {
  std::string text(199'999, 'x');
  text += "\u20ac";
  const std::string shown = Shown(text, 1000);
  EXPECT_LE(shown.size(), 1000u);
  EXPECT_TRUE(shown.ends_with(" more characters)")) << shown;
  EXPECT_EQ(Shown(shown, 1000), shown);
  EXPECT_EQ(Shown(text, 200'002), text);
  const std::string euros =
      std::string(50, ' ').append("\u20ac\u20ac\u20ac\u20ac\u20ac\u20ac\u20ac");
  for (size_t most = 60; most < 70; ++most) {
    const std::string cut = Shown(euros, most);
    EXPECT_EQ(Utf8Prefix(cut), cut.size()) << most;
  }
}

TEST(ShownLines, OnlyIndentedLinesAreOurs) {
  EXPECT_EQ(ShownLines("a\n  b\nc\n"), "a\n  b\\nc\n");
  EXPECT_EQ(ShownLines("a\n  b\n  \x1b", 100), "a\n  b\n  \\x1b");
}

TEST(EscapedUtf8, IsUtf8AndReadsBackTheSame) {
  EXPECT_EQ(EscapedUtf8("a\u00e4\xe9z\xc3"), "a\u00e4\\351z\\303");
  EXPECT_EQ(Utf8Prefix("a\u00e4\xe9z"), 3u);
}

TEST(OneLine, HasNoControls) {
  EXPECT_EQ(OneLine("\xd0\xba\xd0\xbe\xd1\x82", 6), "\xd0\xba\xd0\xbe\xd1\x82");
  EXPECT_EQ(OneLine("\xd0\xba\xd0\xbe\xd1\x82", 5), "\xd0\xba...");  // not half a character
  EXPECT_EQ(OneLine("a\nb\x1b[2Jc\x7f", 80), "a b [2Jc ");
  EXPECT_EQ(OneLine("a\xc2\x9b"
                    "2Jb",
                    80),
            "a 2Jb");
  EXPECT_EQ(OneLine("\xc3\xa9t\xc3\xa9", 80), "\xc3\xa9t\xc3\xa9");
  EXPECT_EQ(OneLine("\xff", 80), "\xef\xbf\xbd");
  EXPECT_EQ(OneLine("abcdefghij", 8), "abcde...");
}

}  // namespace
}  // namespace muster
