// A copy of this process's log in a file.
#pragma once

#include <string>

namespace muster {

inline constexpr const char* kLogPattern = "%Y-%m-%d %H:%M:%S.%e %n %l: %v";

// Appends every later line to this file, too, unless standard error is that file. Returns false
// where that cannot be done.
bool AlsoLogTo(const std::string& path);

}  // namespace muster
