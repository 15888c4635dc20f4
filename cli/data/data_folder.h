// The directory that a data set is written to: one writer at a time, whole sets only.
#pragma once

#include <filesystem>
#include <functional>

#include "common/base/fd.h"

namespace muster {

// Makes `dir` if need be and keeps other Muster processes from writing data sets there while the
// descriptor is open. Throws Error(kFailure).
UniqueFd LockDataFolder(const std::filesystem::path& dir);

// Where a data set in CIFAR-10's layout would be read from in `dir`, or what is in its place, whole
// or not. Empty if a new one can be made: an empty directory does not count.
std::filesystem::path ExistingCifar10(const std::filesystem::path& dir);

// Makes the folder `target`, whole or not at all: calls fill() with a hidden folder beside it and
// renames that. Removes what an interrupted call left. The caller holds the lock of the directory.
void StageFolder(const std::filesystem::path& target,
                 const std::function<void(const std::filesystem::path&)>& fill);

}  // namespace muster
