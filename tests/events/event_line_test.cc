// Events as lines: what is written is read again, and what is no event is refused with its words.
#include "common/events/event_line.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <cmath>

#include "common/base/error.h"
#include "common/base/utf8.h"

namespace muster {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string ErrorOf(const std::string& line) {
  try {
    (void)ParseEventLine(line);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(EventLineTest, ALineIsReadAsItWasWritten) {
  events::Event event;
  events::Failure& failure = *event.mutable_failure();
  failure.set_exit_code(4);
  failure.set_rank(0);
  failure.set_what("rank 0: \"a\nb\" \xc3\xa4");
  const std::string line = EventLine(event);
  EXPECT_EQ(
      line,
      "{\"failure\":{\"exit_code\":4,\"rank\":0,\"what\":\"rank 0: \\\"a\\nb\\\" \xc3\xa4\"}}\n");
  const events::Event again = ParseEventLine(line.substr(0, line.size() - 1));
  EXPECT_EQ(again.SerializeAsString(), event.SerializeAsString());
}

TEST(EventLineTest, NumbersKeepTheirBitsAndZerosAreSaid) {
  events::Event event;
  events::Measured& measured = *event.mutable_log()->mutable_measured();
  measured.set_train_loss(0.1);
  measured.set_step_ms(1.0 / 3);
  measured.set_skipped_steps(0);
  measured.set_train_accuracy(NAN);  // is left out
  const events::Measured again = ParseEventLine(EventLine(event)).log().measured();
  EXPECT_EQ(again.train_loss(), 0.1);
  EXPECT_EQ(again.step_ms(), 1.0 / 3);
  EXPECT_TRUE(again.has_skipped_steps());
  EXPECT_FALSE(again.has_timed_steps());
  EXPECT_FALSE(again.has_train_accuracy());
}

TEST(EventLineTest, AnEventWithoutFieldsIsOne) {
  events::Event event;
  event.mutable_beat();
  EXPECT_EQ(EventLine(event), "{\"beat\":{}}\n");
  EXPECT_TRUE(ParseEventLine("{\"beat\":{}}").has_beat());
}

// File names and hosts are bytes.
TEST(EventLineTest, TextIsMadeValid) {
  events::Event event;
  event.mutable_started()->add_workers()->set_host("h\xff\xc3");
  event.mutable_started()->set_instruction_set("\xed\xa0\x80");
  const events::Started again = ParseEventLine(EventLine(event)).started();
  EXPECT_EQ(again.workers(0).host(), "h\ufffd\ufffd");
  EXPECT_EQ(again.instruction_set(), "\ufffd\ufffd\ufffd");
}

TEST(EventLineTest, WhatIsNewerIsLeftOut) {
  EXPECT_EQ(ParseEventLine("{\"newer\":{\"rank\":1}}").kind_case(), events::Event::KIND_NOT_SET);
  EXPECT_EQ(ParseEventLine("{}").kind_case(), events::Event::KIND_NOT_SET);
  const events::Event event =
      ParseEventLine("{\"joined\":{\"rank\":1,\"newer\":[{\"a\":null}]},\"newer\":2}");
  EXPECT_EQ(event.joined().rank(), 1u);
  // An end that this program does not know is none that it waits for.
  EXPECT_EQ(ParseEventLine("{\"summary\":{\"end\":\"PAUSED\",\"steps\":3}}").summary().end(),
            events::Summary::UNKNOWN);
}

TEST(EventLineTest, WhatIsNoEventIsRefusedWithItsWords) {
  EXPECT_THAT(ErrorOf("nonsense"), AllOf(HasSubstr("expected an event of the server"),
                                         HasSubstr("got 8 bytes: nonsense")));
  for (const char* line : {"", "[1]", "17", "\"text\"", "null", "{\"joined\":", "{\"joined\":7}",
                           "{\"joined\":{\"rank\":\"two\"}}", "{\"joined\":{\"rank\":-1}}",
                           "{\"joined\":{},\"beat\":{}}", "{\"joined\":{}} {}",
                           "{\"log\":{\"at\":{\"step\":1e300}}}"}) {
    EXPECT_NE(ErrorOf(line), "") << line;
  }
  EXPECT_LT(ErrorOf(std::string(100'000, 'x')).size(), 250u);
  EXPECT_THAT(ErrorOf("\x1b[31m"), HasSubstr("?[31m"));
  EXPECT_NE(ErrorOf(std::string(100'000, '[')), "");
}

TEST(ValidUtf8Test, KeepsCharactersAndReplacesTheRest) {
  const std::string valid = "a\u00e4\u20ac\U0001F600\u0000";
  EXPECT_EQ(ValidUtf8(valid), valid);
  EXPECT_EQ(ValidUtf8(""), "");
  EXPECT_EQ(ValidUtf8("\x80 \xc3"), "\ufffd \ufffd");
  EXPECT_EQ(ValidUtf8("\xc0\xaf"), "\ufffd\ufffd");  // longer than need be
  EXPECT_EQ(ValidUtf8("\xe0\x80\xaf"), "\ufffd\ufffd\ufffd");
  EXPECT_EQ(ValidUtf8("\xf4\x90\x80\x80"), "\ufffd\ufffd\ufffd\ufffd");  // beyond U+10FFFF
  EXPECT_EQ(ValidUtf8("\xe2\x82"
                      "b"),
            "\ufffd\ufffd"
            "b");
}

TEST(ShownTest, NothingReachesATerminalRaw) {
  EXPECT_EQ(Shown("a\u00e4 \u20ac\\"), "a\u00e4 \u20ac\\");
  EXPECT_EQ(Shown("\x1b[31m\n\t\r\x7f\u009b\xe9"), "\\x1b[31m\\n\\t\\r\\x7f\\u009b\\xe9");
  EXPECT_EQ(Shown(std::string("a\0b", 3)), "a\\x00b");
}

TEST(ShownTest, WhatIsTooLongIsCutBetweenCharacters) {
  std::string text(199'999, 'x');
  text += "\u20ac";
  const std::string shown = Shown(text, 1000);
  EXPECT_LE(shown.size(), 1000u);
  EXPECT_TRUE(shown.ends_with(" more characters)")) << shown;
  EXPECT_EQ(Shown(shown, 1000), shown);
  EXPECT_EQ(Shown(text, 200'002), text);
  for (size_t most = 60; most < 70; ++most) {
    const std::string cut =
        Shown(std::string(50, ' ') + "\u20ac\u20ac\u20ac\u20ac\u20ac\u20ac\u20ac", most);
    EXPECT_EQ(Utf8Prefix(cut), cut.size()) << most;
  }
}

TEST(ShownLinesTest, OnlyIndentedLinesAreOurs) {
  EXPECT_EQ(ShownLines("a\n  b\nc\n"), "a\n  b\\nc\n");
  EXPECT_EQ(ShownLines("a\n  b\n  \x1b", 100), "a\n  b\n  \\x1b");
}

TEST(EscapedUtf8Test, IsUtf8AndReadsBackTheSame) {
  EXPECT_EQ(EscapedUtf8("a\u00e4\xe9z\xc3"), "a\u00e4\\351z\\303");
  EXPECT_EQ(Utf8Prefix("a\u00e4\xe9z"), 3u);
}

}  // namespace
}  // namespace muster
