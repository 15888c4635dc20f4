// Describes a process from /proc, so that people can see its owner.
#pragma once

#include <sys/types.h>

#include <ctime>
#include <optional>
#include <string>

namespace muster {

struct ProcessText {
  pid_t pid = 0;
  bool seen = false;                 // it exists in this process namespace
  std::string user;                  // its owner's name, or number
  std::string command;               // its command line, truncated, without control characters
  std::optional<std::time_t> since;  // its start time
};

ProcessText DescribeProcess(pid_t pid);

// The name of a user, or the number if it has no name.
std::string UserName(uid_t user);

// "10:31" for today, otherwise "31 Jan 10:31".
std::string ClockText(std::time_t time);

}  // namespace muster
