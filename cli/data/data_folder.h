// Writes data sets to a directory: one writer at a time, and only complete sets.
#pragma once

#include <filesystem>
#include <functional>

#include "common/base/fd.h"

namespace muster {

// Creates `dir` if it is missing, and keeps other Muster processes from writing data sets there
// while the descriptor is open. Throws Error(kFailure).
UniqueFd LockDataFolder(const std::filesystem::path& dir);

// Returns the path in `dir` from which a data set in CIFAR-10's layout would be read, if anything
// is there, complete or not. Returns an empty path if a new data set can be created; an empty
// directory does not count.
std::filesystem::path ExistingCifar10(const std::filesystem::path& dir);

// Creates the folder `target` atomically: calls fill() with a hidden folder next to it, and then
// renames that folder. Removes what an interrupted call left. The caller must hold the lock of the
// directory.
void StageFolder(const std::filesystem::path& target,
                 const std::function<void(const std::filesystem::path&)>& fill);

}  // namespace muster
