// Stands between this program and the C library where files below one directory are changed: each
// call is noted, and one of them fails, or ends the process.
#pragma once

#include <string>
#include <vector>

#include "tests/checkpoint/interposed_calls.h"

namespace muster::testing {

struct SystemCall {
  std::string name;
  std::string path;  // what it is about; of a rename: from
  std::string to;    // of a rename
};

// From now on, of calls about paths that begin with `below`: the one of this number (from 0) has
// the fault. An error has that number.
void WatchCalls(const std::string& below, Fault fault = Fault::kNone, size_t at = 0, int error = 0);
// What has been called since, in order. Ends the watch.
std::vector<SystemCall> TakeCalls();

}  // namespace muster::testing
