// The last lines of a process's log, to show when it has failed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace muster {

// At most `count` non-empty lines from the end of the file, each truncated to 1,000 bytes and
// without control characters (OneLine). Empty if the file cannot be read. `begin`: the size of the
// log before the process appended to it; older lines do not count.
std::vector<std::string> LastLines(const std::string& path, size_t count, int64_t begin = 0);

// The last error in the log of a process: the text after "error: " in the last such line, or "".
// Errors with the exit code `except` do not count.
std::string LastError(const std::string& path, int64_t begin = 0, int except = -1);

}  // namespace muster
