// Describes a process from /proc, so that people can see its owner.
#pragma once

#include <sys/types.h>

#include <ctime>
#include <optional>
#include <string>

namespace muster {

struct ProcessText {
  pid_t pid = 0;
  bool seen = false;                 // it lives, and in this process namespace
  std::string user;                  // its owner's name, or number
  std::string command;               // its command line, cut short, without control characters
  std::optional<std::time_t> since;  // when it started
};

ProcessText DescribeProcess(pid_t pid);

// A user's name, or the number where it has none.
std::string UserName(uid_t user);

// "10:31" of today, else "31 Jan 10:31".
std::string ClockText(std::time_t time);

}  // namespace muster
