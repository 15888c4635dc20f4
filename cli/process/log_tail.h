// The last lines of a process's log, to show when it has failed.
#pragma once

#include <string>
#include <vector>

namespace muster {

// At most `count` non-empty lines from the end of the file, each truncated to 1,000 bytes and
// without control characters (OneLine). Empty if the file cannot be read.
std::vector<std::string> LastLines(const std::string& path, size_t count);

// The last error in the log of a process: the text after "error: " in the last such line, or "".
std::string LastError(const std::string& path);

}  // namespace muster
