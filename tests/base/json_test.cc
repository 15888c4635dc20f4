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
  EXPECT_TRUE(ParseJson<nlohmann::ordered_json>(Nested(3), 3).is_array());
  EXPECT_TRUE(ParseJson<nlohmann::ordered_json>(Nested(4), 3).is_discarded());
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

}  // namespace
}  // namespace muster
