// Reads a whole file.
#pragma once

#include <cstddef>
#include <string>

#include "common/base/error.h"

namespace muster {

// All of one of our own; "" if it cannot be read, or is no plain file.
std::string ReadFileIfThere(const std::string& path);

// Of a file that a person wrote, whatever it turns out to be.
struct ReadTextOptions {
  size_t most_bytes = 64 << 20;  // more is no text that anybody wrote; /dev/zero never ends
  double patience_s = 10;        // for a pipe to say something more
};

// All of it. A pipe is read to its end, as long as something comes. Throws Error(kUsage): a folder,
// what cannot be read, is larger, or says nothing for so long.
std::string ReadTextFile(const std::string& path, const ReadTextOptions& options = {});

}  // namespace muster
