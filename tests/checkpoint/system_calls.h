// Records this program's calls that change files below one directory. One of them can be made to
// fail or to kill the process.
#pragma once

#include <string>
#include <vector>

#include "tests/checkpoint/interposed_calls.h"

namespace muster::testing {

struct SystemCall {
  std::string name;
  std::string path;  // for rename the old path
  std::string to;    // the new path of a rename
};

// Watches calls for paths that start with `below`. The call with number `at` (from 0) has the
// fault, with this errno.
void WatchCalls(const std::string& below, Fault fault = Fault::kNone, size_t at = 0, int error = 0);
// Returns the recorded calls in order and ends the watch.
std::vector<SystemCall> TakeCalls();

}  // namespace muster::testing
