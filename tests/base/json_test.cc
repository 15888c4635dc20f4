// JSON from others is parsed or rejected. Nesting is limited, so that the stack never overflows.
#include "common/base/json.h"

#include <gtest/gtest.h>

#include <string>

namespace muster {
namespace {

std::string Nested(int depth, const std::string& inside = "") {
  const auto brackets = static_cast<size_t>(depth);
  return std::string(brackets, '[') + inside + std::string(brackets, ']');
}

TEST(Json, WhatIsNestedTooDeeplyIsDiscarded) {
  EXPECT_TRUE(ParseJson(Nested(kMostJsonNesting)).is_array());
  EXPECT_TRUE(ParseJson(Nested(kMostJsonNesting + 1)).is_discarded());
  EXPECT_TRUE(ParseJson(Nested(1'000'000)).is_discarded());
  EXPECT_TRUE(ParseJson("{\"a\": " + Nested(kMostJsonNesting) + "}").is_discarded());
  EXPECT_TRUE(ParseOrderedJson(Nested(3), 3).is_array());
  EXPECT_TRUE(ParseOrderedJson(Nested(4), 3).is_discarded());
}

TEST(Json, BracketsOfStringsAndThoseThatAreClosedDoNotCount) {
  std::string text(1000, '{');
  text = "\"" + text + "\\\"[\"";
  EXPECT_EQ(ParseJson(text).get<std::string>(), std::string(1000, '{') + "\"[");
  std::string list = "[";
  for (int i = 0; i < 1000; ++i) list += "[{}],";
  EXPECT_EQ(ParseJson(list + "1]").size(), 1001u);
}

TEST(Json, WhatIsNoJsonIsDiscarded) {
  for (const char* text : {"", "{", "]", "\"", "\"\\", "[1,]", "nul", "{\"a\":1} 2"}) {
    EXPECT_TRUE(ParseJson(text).is_discarded()) << text;
  }
}

TEST(Json, InvalidUtf8IsWrittenAsReplacementCharacters) {
  EXPECT_EQ(JsonText(nlohmann::json("h\xe9, é")), "\"h\xef\xbf\xbd, é\"");
  EXPECT_EQ(JsonText(nlohmann::ordered_json{{"b", "\xff"}, {"a", 1}}, 1),
            "{\n \"b\": \"\xef\xbf\xbd\",\n \"a\": 1\n}");
}

}  // namespace
}  // namespace muster
