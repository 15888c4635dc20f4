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

}  // namespace muster
