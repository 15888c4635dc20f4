// The lock files that the jobs of all users of this host share its GPUs by.
//
// There is one file for each GPU (muster-gpu-<UUID>.lock) and one for each job that wants or has
// GPUs (muster-gpu-job-…, see ticket.h). Its user has locked it. The lock (flock) belongs to the
// open file: it holds while any process has that open, even an inherited copy, and the kernel
// releases it when the last one ends, even by a crash.
#pragma once

#include <string>

#include "common/base/fd.h"

namespace muster {

// A folder like /tmp: everybody may make files in it, nobody may remove another's.
class LockFolder {
 public:
  // Any such folder; for tests. Throws Error(kFailure) if it is none.
  explicit LockFolder(std::string path);

  // This host's: the same for every user, /run/lock where that is such a folder, else /tmp.
  static LockFolder OfHost();

  const std::string& path() const { return path_; }
  std::string File(const std::string& name) const { return path_ + "/" + name; }

  // Opens a file of anybody's for reading, but no link. Invalid, with errno, if that fails.
  UniqueFd Open(const std::string& name) const;
  // Makes a file that everybody may read and this user alone may write, with this text in it and
  // locked from its first moment. Invalid if there is one of that name. Throws Error(kFailure).
  UniqueFd Make(const std::string& name, const std::string& text) const;

  // The lock of this GPU, which is then this process's and its heirs'. Invalid if somebody has it.
  // Throws Error(kFailure) where no lock can be had at all.
  UniqueFd LockGpu(const std::string& uuid) const;
  // The holder of this GPU's lock that has no ticket, as far as this process can see:
  // "anna's flock /run/lock/… (pid 4242)", or "" without one.
  std::string LockHolder(const std::string& uuid) const;

 private:
  std::string path_;
};

// Releases a lock at once, even if a process that is just being started still has a copy.
void Unlock(UniqueFd& lock);

}  // namespace muster
