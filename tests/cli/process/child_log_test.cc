// A child whose log cannot be opened, and one that leaves processes behind.
#include <fcntl.h>
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

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

std::optional<ChildEnd> EndOf(ChildProcess& child) {
  std::optional<ChildEnd> end;
  for (int i = 0; i < 2000 && !end; ++i) {
    end = child.CheckEnd();
    if (!end) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return end;
}

// The shells are in sessions of their own. The pipe ends when nobody has it any more.
TEST(ChildProcess, MayTakeAllItsDescendantsAlong) {
  for (const bool all : {true, false}) {
    int ends[2];
    ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    const UniqueFd read_end(ends[0]);
    UniqueFd write_end(ends[1]);
    ChildProcess child({.program = "/bin/sh",
                        .arguments = {"-c", "setsid sh -c 'echo x; sleep 60 & read line' & exit 0"},
                        .log_path = "",
                        .output_fd = write_end.get(),
                        .error_fd = write_end.get(),
                        .takes_all_along = all});
    write_end.Reset();
    char text[8];
    ASSERT_GT(::read(read_end.get(), text, sizeof text), 0);
    ASSERT_TRUE(EndOf(child));
    pollfd end{.fd = read_end.get(), .events = POLLIN};
    EXPECT_EQ(::poll(&end, 1, all ? 10'000 : 0), all ? 1 : 0);
  }
}

TEST(ChildLog, WithoutOneNothingIsBegun) {
  EXPECT_THROW(ChildProcess(WithoutAPlaceForItsLog(false)), Error);
}

TEST(ChildLog, ButWhatTakesTheLastOnesPlaceIs) {
  ChildProcess child(WithoutAPlaceForItsLog(true));
  EXPECT_THAT(child.log_trouble(), ::testing::HasSubstr("/nowhere/at/all.log"));
  const std::optional<ChildEnd> end = EndOf(child);
  ASSERT_TRUE(end);
  EXPECT_FALSE(end->by_signal);
  EXPECT_EQ(end->value, 0);
}

}  // namespace
}  // namespace muster
