// The launcher's end of a small pipe for events.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <sstream>
#include <string>
#include <vector>

#include "common/base/fd.h"
#include "common/events/event_line.h"

namespace muster::testing {

class SentEvents {
 public:
  SentEvents() {
    std::signal(SIGPIPE, SIG_IGN);
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    read_end_.Reset(ends[0]);
    write_end_.Reset(ends[1]);
    ::fcntl(read_end_.get(), F_SETFL, O_NONBLOCK);
    ::fcntl(write_end_.get(), F_SETPIPE_SZ, 4096);
  }

  int fd() const { return write_end_.get(); }
  void StopReading() { read_end_.Reset(); }
  // Reads all data in the pipe.
  std::string Text() const {
    std::string text;
    char buffer[4096];
    for (ssize_t n; (n = ::read(read_end_.get(), buffer, sizeof buffer)) > 0;) {
      text.append(buffer, static_cast<size_t>(n));
    }
    return text;
  }
  static std::vector<events::Event> EventsOf(const std::string& text) {
    std::vector<events::Event> read;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) read.push_back(ParseEventLine(line));
    return read;
  }
  std::vector<events::Event> Events() const { return EventsOf(Text()); }

 private:
  UniqueFd read_end_, write_end_;
};

}  // namespace muster::testing
