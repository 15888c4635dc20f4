// The file that a command is asked to write.
#pragma once

#include <string>

namespace muster {

// Throws Error(kUsage) if it is one that a run writes, whether it is there yet or not. `from`: what
// the command reads.
void RefuseFileOfRun(const std::string& path, const std::string& from);

// The same, and if a file is there already and `force` does not say that it may go: weights may be
// a day's work.
void CheckOutputFile(const std::string& path, bool force, const std::string& from);

}  // namespace muster
