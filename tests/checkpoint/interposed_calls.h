// Interposes the C library's calls that change files. A program or preloaded library that links
// interposed_calls.cc decides the result of each.
#pragma once

#include <string>

namespace muster::testing {

enum class Fault {
  kNone,
  kKill,        // SIGKILL before the call
  kKillInside,  // kills the process after a partial write
  kError,       // the call fails; OnCall sets errno
};

// The linking program defines both. Called by any thread. Paths are determined only while calls are
// watched.
bool WatchesCalls();
// `name` is create, write, fsync, truncate, close, rename (`to` is its new name), mkdir or remove.
// kKill does not return.
Fault OnCall(const char* name, const std::string& path, const std::string& to);

}  // namespace muster::testing
