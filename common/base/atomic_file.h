// A file that is there whole or not at all.
#pragma once

#include <string>

namespace muster {

// Writes `text` beside `path`, syncs it and renames it into place. Throws Error(kFailure) that
// names the file; what was at `path` before is then still there.
void WriteFileAtomically(const std::string& path, const std::string& text);

}  // namespace muster
