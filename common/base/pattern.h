// Regular expressions, by the C library: std::regex takes seconds to compile wherever it is used.
#pragma once

#include <string>
#include <vector>

namespace muster {

// The first place in `text` that `pattern`, a POSIX extended regular expression, matches (the
// longest match there): all of it, then each group, "" if it has no part in it. Empty: no match.
std::vector<std::string> Search(const char* pattern, const std::string& text);

}  // namespace muster
