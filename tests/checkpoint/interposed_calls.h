// The C library's calls that change files, with something between the caller and them: a program or
// a preloaded library that links interposed_calls.cc decides what becomes of each.
#pragma once

#include <string>

namespace muster::testing {

enum class Fault {
  kNone,
  kKill,        // SIGKILL before the call
  kKillInside,  // kills the process after a partial write
  kError,       // the call fails; errno is set by who decides
};

// Whoever links this defines both. Any thread; the paths are looked up only where calls are
// watched.
bool WatchesCalls();
// create, write, fsync, truncate, close, rename (`to` is its new name), mkdir or remove. kKill does
// not return.
Fault OnCall(const char* name, const std::string& path, const std::string& to);

}  // namespace muster::testing
