// Where a command is asked to write a file.
#pragma once

#include <string>

namespace muster {

// Throws Error if no file can be written to `out`, before any work is done: kUsage if it is no
// file's name, is a folder, or, without `force`, a symbolic link, which writing would replace;
// kFailure if its folder is not there.
void CheckOutputPlace(const std::string& out, bool force);

}  // namespace muster
