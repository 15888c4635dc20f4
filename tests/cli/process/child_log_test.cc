// A child whose log cannot be opened.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "cli/process/child_process.h"
#include "common/base/error.h"

namespace muster {
namespace {

ChildOptions WithoutAPlaceForItsLog(bool append) {
  return {.program = "/bin/true",
          .arguments = {},
          .log_path = "/nowhere/at/all.log",
          .inherited_fds = {},
          .append = append};
}

TEST(ChildLog, WithoutOneNothingIsBegun) {
  EXPECT_THROW(ChildProcess(WithoutAPlaceForItsLog(false)), Error);
}

TEST(ChildLog, ButWhatTakesTheLastOnesPlaceIs) {
  ChildProcess child(WithoutAPlaceForItsLog(true));
  EXPECT_THAT(child.log_trouble(), ::testing::HasSubstr("/nowhere/at/all.log"));
  std::optional<ChildEnd> end;
  for (int i = 0; i < 2000 && !end; ++i) {
    end = child.CheckEnd();
    if (!end) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  ASSERT_TRUE(end);
  EXPECT_FALSE(end->by_signal);
  EXPECT_EQ(end->value, 0);
}

}  // namespace
}  // namespace muster
