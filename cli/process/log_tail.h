// The last lines of a process's log, to show when it has failed.
#pragma once

#include <string>
#include <vector>

namespace muster {

// At most `count` non-empty lines from the end of the file, each cut to 1,000 bytes and fit for a
// terminal (OneLine): a log is shown there, it must not control it. Empty where the file cannot be
// read.
std::vector<std::string> LastLines(const std::string& path, size_t count);

// What a process said last about its failure: the text behind "error: " in the last such line of
// its log, or "".
std::string LastError(const std::string& path);

}  // namespace muster
