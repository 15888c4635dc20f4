// Events as lines: events are written and parsed, and invalid lines are quoted in the error.
#include "common/events/event_line.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <cmath>

#include "common/base/error.h"
#include "common/base/text.h"

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

TEST(EventLineTest, TextsBecomeUtf8) {
  events::Event event;
  event.mutable_summary()->set_stop_reason("a\xff");
  for (const char* name : {"b\xff", "c"}) event.mutable_summary()->add_other_bits(name);
  const events::Summary again = ParseEventLine(EventLine(event)).summary();
  EXPECT_EQ(again.stop_reason(), ValidUtf8("a\xff"));
  EXPECT_EQ(again.other_bits(0), ValidUtf8("b\xff"));
  EXPECT_EQ(again.other_bits(1), "c");
}

TEST(EventLineTest, NumbersKeepTheirBitsAndZerosAreSaid) {
  events::Event event;
  events::Measured& measured = *event.mutable_log()->mutable_measured();
  measured.set_train_loss(0.1);
  measured.set_step_ms(1.0 / 3);
  measured.set_skipped_steps(0);
  measured.set_train_accuracy(NAN);  // left out
  const events::Measured again = ParseEventLine(EventLine(event)).log().measured();
  EXPECT_EQ(again.train_loss(), 0.1);
  EXPECT_EQ(again.step_ms(), 1.0 / 3);
  EXPECT_TRUE(again.has_skipped_steps());
  EXPECT_FALSE(again.has_timed_steps());
  EXPECT_FALSE(again.has_train_accuracy());
}

TEST(EventLineTest, ALossThatIsNotFiniteArrives) {
  events::Event event;
  event.mutable_summary()->mutable_test()->set_loss(INFINITY);
  event.mutable_summary()->mutable_validation()->set_loss(NAN);
  const events::Summary again = ParseEventLine(EventLine(event)).summary();
  EXPECT_EQ(again.test().loss(), INFINITY);
  EXPECT_TRUE(std::isnan(again.validation().loss()));
}

TEST(EventLineTest, AnEventWithoutFieldsIsOne) {
  events::Event event;
  event.mutable_beat();
  EXPECT_EQ(EventLine(event), "{\"beat\":{}}\n");
  EXPECT_TRUE(ParseEventLine("{\"beat\":{}}").has_beat());
}

// File names and host names may be any bytes.
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
  // An unknown kind of end is not one that the program waits for.
  EXPECT_EQ(ParseEventLine("{\"summary\":{\"end\":\"PAUSED\",\"steps\":3}}").summary().end(),
            events::Summary::UNKNOWN);
}

TEST(EventLineTest, WhatIsNoEventIsRefusedWithItsWords) {
  EXPECT_THAT(ErrorOf("nonsense"), AllOf(HasSubstr("expected an event from the server"),
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

}  // namespace
}  // namespace muster
