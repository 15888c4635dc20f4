#include "common/base/number_list.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "common/base/error.h"

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

// Before as many numbers are made.
TEST(NumberList, BeyondTheEnd) {
  try {
    (void)ParseNumberList("--samples", "3,0-9000000000000000000", 10);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("expected numbers from 0 to 9, got 9,000,"));
  }
}

}  // namespace
}  // namespace muster
