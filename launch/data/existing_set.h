// What is already in a directory that is to get a data set.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace muster {

// Where in `dir` a data set in CIFAR-10's layout is, or something that occupies its place, whole
// or not. Nothing where a new one can be made; an empty directory does not count.
std::optional<std::filesystem::path> FindExistingSet(const std::string& dir);

}  // namespace muster
