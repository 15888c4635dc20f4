// Opens plain files alone, and never waits: a pipe in the place of a file would hold a command up
// for ever, and a device has no end.
#pragma once

#include <fcntl.h>

#include <fstream>
#include <string>

#include "common/base/unique_fd.h"

namespace muster {

// With O_CLOEXEC. Not valid, and errno says why, if it cannot be opened. Throws Error(kData) for
// anything but a plain file: a folder, a pipe, a device, and what the kernel makes up (/proc).
// `expected`: "a safetensors file".
UniqueFd OpenPlainFile(const std::string& path, const char* expected = "a plain file",
                       int flags = O_RDONLY, mode_t mode = 0644);

// The same, to be read as a stream.
std::ifstream ReadPlainFile(const std::string& path);

}  // namespace muster
