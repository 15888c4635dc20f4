// The file that a command is asked to write.
#pragma once

#include <string>

namespace muster {

// Throws Error(kUsage) if a file is there already and `force` does not say that it may go: weights
// may be a day's work.
void CheckOutputFile(const std::string& path, bool force);

}  // namespace muster
