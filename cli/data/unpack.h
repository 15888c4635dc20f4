// Unpacking a published archive.
#pragma once

#include <filesystem>
#include <string>

namespace muster {

// Writes the regular files that lie directly in `folder` of the .tar.gz `archive` into the existing
// directory `target`, each whole and on the disk. Anything else in the archive but directories
// (links, other folders, paths with "..") is refused, so nothing is written elsewhere.
// Throws Error: kData for a bad archive, kFailure for the disk.
void Unpack(const std::filesystem::path& archive, const std::string& folder,
            const std::filesystem::path& target);

}  // namespace muster
