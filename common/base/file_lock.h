// Locks of files (flock): the kernel's, gone with the last process that has the open file, however
// it ends.
#pragma once

#include <string>

#include "common/base/unique_fd.h"

namespace muster {

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
