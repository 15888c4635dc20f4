// Files that runs write.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace muster {

// The directory of the run that `path` is a file of: one that muster writes there, whether it is
// there yet or not, by whatever name it is given (a link, "..", another name of the same file). Of
// files with several names only the runs in `known`, directories or paths in them, and the run that
// a file of weights says it is of, are looked through.
std::optional<std::string> RunOfFile(const std::string& path,
                                     const std::vector<std::string>& known = {});

// Whether `path` is one of the files that a run in this directory writes, as far as its name tells.
bool IsFileOfRunIn(const std::string& dir, const std::string& path);

// Whether a run has written into this directory.
bool HoldsRun(const std::string& dir);

}  // namespace muster
