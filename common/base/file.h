// Opens plain files only, reads whole files, and locks files. See atomic_file.h for atomic writes.
#pragma once

#include <fcntl.h>

#include <cstddef>
#include <iosfwd>
#include <string>

#include "common/base/fd.h"

namespace muster {

// Opens plain files only: a pipe could block forever, and a device has no end. Never blocks. Sets
// O_CLOEXEC. If the file cannot be opened, the result is invalid and errno is set. Throws
// Error(kData) for anything that is not a plain file: a folder, a pipe, a device, or a virtual file
// of the kernel (/proc). `expected` is for the error: "a safetensors file". With O_CREAT, a
// symbolic link is none either: whoever can make one in that folder chooses where it leads.
UniqueFd OpenPlainFile(const std::string& path, const char* expected = "a plain file",
                       int flags = O_RDONLY, mode_t mode = 0666);

// Throws Error(kUsage) if another user controls this folder, or the link at this path: it belongs
// neither to this user, nor to root, nor to a group of this user that may write there, or everybody
// may. `what` is for the error: "the run directory". A folder that is missing belongs to nobody.
void RequireTrustedFolder(const char* what, const std::string& path);

// The same as OpenPlainFile, but returns a stream. Callers must include <fstream>.
std::ifstream ReadPlainFile(const std::string& path);

// Reads one of our own files. Returns "" if it is unreadable or not a plain file.
std::string ReadFileIfThere(const std::string& path);

// Limits for reading a file named by the user, which may be anything.
struct ReadTextOptions {
  size_t most_bytes = 64 << 20;  // larger files are not text; /dev/zero never ends
  double patience_s = 10;        // the longest wait for more data from a pipe
};

// Reads the whole file. A pipe is read to its end. Throws Error(kUsage) if the file is a folder,
// unreadable or too large, or if a pipe is silent for too long.
std::string ReadTextFile(const std::string& path, const ReadTextOptions& options = {});

// File locks (flock). The kernel releases a lock when the last process that has the file open
// closes it or dies.
enum class LockMode { kExclusive, kShared };
enum class Locked {
  kYes,
  kTaken,   // another process holds the lock
  kCannot,  // locking is unsupported; errno gives the reason
};
// Tries to take a lock. Does not block.
Locked TryLock(int fd, LockMode mode = LockMode::kExclusive);

// Whether the descriptor still refers to the file at that path. If the file was removed or replaced
// between opening and locking, the next process locks a different file, and both hold a lock.
bool IsStillAt(int fd, const std::string& path);

}  // namespace muster
