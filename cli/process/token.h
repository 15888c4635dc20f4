// The shared secret of the processes of a job.
#pragma once

#include <string>

namespace muster {

// 128 random bits, as 32 hexadecimal digits. `muster launch` passes it in an anonymous file or over
// a connection, so it never appears in a command line, an environment, or a named file.
std::string NewToken();

// Writes a new file that only its owner can read, for workers that are started by hand. Throws
// Error(kUsage) if the file exists or cannot be written.
void WriteTokenFile(const std::string& path, const std::string& token);

}  // namespace muster
