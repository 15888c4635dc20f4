// The file that a command is asked to write.
#pragma once

#include <string>

namespace muster {

// Throws Error(kUsage), before any work is done, if `path` is not the name of a file, or if
// something is there already and `force` does not say that it may go: weights may be a day's work.
void CheckOutputFile(const std::string& path, bool force);

}  // namespace muster
