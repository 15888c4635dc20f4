// Files: opened only if they are plain, read as a whole, and locked. Files that are written whole
// or not at all are in atomic_file.h.
#pragma once

#include <fcntl.h>

#include <cstddef>
#include <iosfwd>
#include <string>

#include "common/base/fd.h"

namespace muster {

// Opens plain files alone, and never waits: a pipe in the place of a file would hold a command up
// for ever, and a device has no end. With O_CLOEXEC. Not valid, and errno says why, if it cannot be
// opened. Throws Error(kData) for anything but a plain file: a folder, a pipe, a device, and what
// the kernel makes up (/proc). `expected`: "a safetensors file".
UniqueFd OpenPlainFile(const std::string& path, const char* expected = "a plain file",
                       int flags = O_RDONLY, mode_t mode = 0644);

// The same, to be read as a stream. Callers include <fstream>.
std::ifstream ReadPlainFile(const std::string& path);

// All of one of our own; "" if it cannot be read, or is no plain file.
std::string ReadFileIfThere(const std::string& path);

// Limits for reading a file that a person names, since it may be anything.
struct ReadTextOptions {
  size_t most_bytes = 64 << 20;  // more is no text that anybody wrote; /dev/zero never ends
  double patience_s = 10;        // for a pipe to say something more
};

// All of it. A pipe is read to its end, as long as something comes. Throws Error(kUsage): a folder,
// what cannot be read, is larger, or says nothing for so long.
std::string ReadTextFile(const std::string& path, const ReadTextOptions& options = {});

// Locks (flock): the kernel's, gone with the last process that has the open file, however it ends.
enum class LockMode { kExclusive, kShared };
enum class Locked {
  kYes,
  kTaken,   // somebody has it
  kCannot,  // no lock is to be had here; errno says why
};
// Does not wait.
Locked TryLock(int fd, LockMode mode = LockMode::kExclusive);

// Whether the descriptor still is of the file at that path. Between opening and locking a file it
// may have been removed or replaced: the next one would lock another, and two would have it.
bool IsStillAt(int fd, const std::string& path);

// A file that says who uses something, for as long as he does. The file stays, with the words of
// the last one who had it.
class FileLock {
 public:
  // Makes `path` where it is missing and locks it, waiting up to `wait_s` for whoever has it now.
  // File systems without locks go without: then everybody gets it.
  FileLock(const std::string& path, double wait_s);

  // Whether it was got. If not, who has it: "pid 42 on host lab3".
  bool held() const { return held_; }
  const std::string& holder() const { return holder_; }

  // Where the file is now, whatever its directory was renamed to; "" if it has been removed.
  std::string PathNow() const;

 private:
  UniqueFd fd_;
  bool held_ = false;
  std::string holder_;
};

}  // namespace muster
