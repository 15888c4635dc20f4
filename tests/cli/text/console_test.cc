#include "cli/text/console.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>

namespace muster {
namespace {

std::string Drain(int fd) {
  ::fcntl(fd, F_SETFL, O_NONBLOCK);
  std::string all;
  char buffer[65536];
  ssize_t got;
  while ((got = ::read(fd, buffer, sizeof buffer)) > 0)
    all.append(buffer, static_cast<size_t>(got));
  return all;
}

class ConsolePipeTest : public ::testing::Test {
 protected:
  ConsolePipeTest() {
    ::signal(SIGPIPE, SIG_IGN);
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    reader_.Reset(ends[0]);
    writer_.Reset(ends[1]);
  }
  UniqueFd reader_, writer_;
};

TEST_F(ConsolePipeTest, OnlyPermanentLines) {
  Console console(writer_.get());
  EXPECT_FALSE(console.is_terminal());
  console.SetLive("live");
  console.Print("one");
  console.SetLive("more");
  console.Print("two");
  EXPECT_EQ(Drain(reader_.get()), "one\ntwo\n");
}

TEST_F(ConsolePipeTest, AReaderThatDoesNotReadDoesNotBlock) {
  Console console(writer_.get());
  std::string line(999, 'x');
  for (int i = 0; i < 5000; ++i) console.Print(line);
  EXPECT_GE(console.poll_fd(), 0);

  std::string all;
  while (console.poll_fd() >= 0) {
    all += Drain(reader_.get());
    console.WritePending();
  }
  all += Drain(reader_.get());
  console.Print("end");
  all += Drain(reader_.get());
  EXPECT_TRUE(all.ends_with(" lines not shown)\nend\n")) << all.substr(all.size() - 100);
}

TEST_F(ConsolePipeTest, WhatIsNotReadIsCut) {
  Console console(writer_.get());
  console.Print("one");
  EXPECT_FALSE(console.cut());
  console.PrintAsIs(std::string(100000, 'x'));  // a pipe holds 65,536 bytes
  EXPECT_TRUE(console.cut());
  while (console.cut()) {
    (void)Drain(reader_.get());
    console.WritePending();
  }
  EXPECT_FALSE(console.closed());
}

TEST_F(ConsolePipeTest, AReaderThatIsGoneIsNoFailure) {
  Console console(writer_.get());
  reader_.Reset();
  console.Print("one");
  console.Print("two");
  EXPECT_TRUE(console.closed());
  EXPECT_EQ(console.poll_fd(), -1);
}

TEST_F(ConsolePipeTest, WhatAFullDiskRefusesIsWrittenOnceThereIsRoom) {
  const UniqueFd output(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  Console console(output.get());
  console.Print("one");
  EXPECT_EQ(console.trouble(), std::strerror(ENOSPC));
  EXPECT_EQ(console.poll_fd(), -1);  // it would always be ready
  ASSERT_GE(::dup2(writer_.get(), output.get()), 0);
  console.Print("two");
  EXPECT_EQ(console.trouble(), "");
  EXPECT_EQ(Drain(reader_.get()), "one\ntwo\n");
}

// A pseudo-terminal with 40 columns.
class ConsoleTerminalTest : public ::testing::Test {
 protected:
  void SetUp() override {
    // A minimal root without its own /dev has at most the directory.
    if (::access("/dev/pts/ptmx", F_OK) != 0) {
      GTEST_SKIP() << "no pseudo-terminals: devpts is not mounted at /dev/pts";
    }
    ::setenv("TERM", "xterm", 1);
    master_.Reset(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
    ASSERT_GE(master_.get(), 0) << std::strerror(errno);
    ASSERT_EQ(::grantpt(master_.get()), 0) << std::strerror(errno);
    ASSERT_EQ(::unlockpt(master_.get()), 0) << std::strerror(errno);
    terminal_.Reset(::open(::ptsname(master_.get()), O_RDWR | O_NOCTTY | O_CLOEXEC));
    ASSERT_GE(terminal_.get(), 0) << std::strerror(errno);
    winsize size{.ws_row = 24, .ws_col = 40};
    ASSERT_EQ(::ioctl(master_.get(), TIOCSWINSZ, &size), 0) << std::strerror(errno);
  }
  UniqueFd master_, terminal_;
};

TEST_F(ConsoleTerminalTest, TheLiveLineStaysLast) {
  {
    Console console(terminal_.get());
    ASSERT_TRUE(console.is_terminal());
    EXPECT_EQ(console.Width(), 39);
    console.SetLive("step 1");
    console.SetLive("step 2");
    console.Print("evaluation");
    console.SetLive("step 3");
  }
  EXPECT_EQ(
      Drain(master_.get()),
      "\r\x1b[Kstep 1\r\x1b[Kstep 2\r\x1b[Kevaluation\r\n\r\x1b[Kstep 2\r\x1b[Kstep 3\r\x1b[K");
}

TEST_F(ConsoleTerminalTest, ARowIsBrokenBetweenWords) {
  {
    Console console(terminal_.get());
    console.PrintRow("  label  " + std::string(20, 'a') + " " + std::string(20, 'b'));
    console.PrintRow(std::string(20, 'a') + " " + std::string(19, 'b'));  // fits exactly
  }
  EXPECT_EQ(Drain(master_.get()), "  label  " + std::string(20, 'a') + "\r\n         " +
                                      std::string(20, 'b') + "\r\n" + std::string(20, 'a') + " " +
                                      std::string(19, 'b') + "\r\n");
}

TEST_F(ConsoleTerminalTest, ATerminalThatDoesNotReadDoesNotBlock) {
  Console console(terminal_.get());
  for (int i = 0; i < 20000; ++i) console.SetLive("step " + std::to_string(i));
  Drain(master_.get());
}

}  // namespace
}  // namespace muster
