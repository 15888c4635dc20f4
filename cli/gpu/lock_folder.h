// The lock files with which the jobs of all users of this host share its GPUs.
//
// There is one file for each GPU (muster-gpu-<UUID>.lock) and one for each job that wants or has
// GPUs (muster-gpu-job-…, see ticket.h). The file is locked while the GPU is used or the job runs.
// The lock (flock) belongs to the open file: it holds while any process has the file open, even an
// inherited copy, and the kernel releases it when the last one ends, even by a crash.
//
// A file can be removed, and the next job would lock another one. So the holder of a GPU also binds
// an abstract socket, which ends in the same way and cannot be removed.
#pragma once

#include <string>
#include <vector>

#include "common/base/fd.h"

namespace muster {

// A locked GPU. Every process that inherits both descriptors holds it.
struct GpuLock {
  UniqueFd file, name;

  bool valid() const { return name.valid(); }
  std::vector<int> fds() const { return {file.get(), name.get()}; }
};

// A folder like /tmp: every user may create files in it, but not remove those of others.
class LockFolder {
 public:
  // Uses the given folder, for tests. Throws Error(kFailure) if it has other permissions.
  explicit LockFolder(std::string path);

  // The folder of this host, the same for every user: /run/lock if that is such a folder, otherwise
  // /tmp.
  static LockFolder OfHost();

  const std::string& path() const { return path_; }
  std::string File(const std::string& name) const { return path_ + "/" + name; }

  // Opens a file of any user for reading, but does not follow links. If that fails, returns an
  // invalid descriptor and sets errno.
  UniqueFd Open(const std::string& name) const;
  // Atomically creates a locked file with this text, which all users may read but only this user
  // may write. Returns an invalid descriptor if the file exists. Throws Error(kFailure).
  UniqueFd Make(const std::string& name, const std::string& text) const;

  // Locks this GPU for this process and those that inherit the descriptors. Returns an invalid lock
  // if the GPU is locked. Throws Error(kFailure) if locking does not work at all.
  GpuLock LockGpu(const std::string& uuid) const;
  // Describes who has locked a GPU without a ticket, as far as this process can see: "anna's flock
  // /run/lock/… (pid 4242)"; "" if it is not locked.
  std::string LockHolder(const std::string& uuid) const;

 private:
  // Returns an invalid descriptor if the file is locked.
  UniqueFd LockFile(const std::string& name) const;
  // The name of the GPU's socket.
  std::string SocketName(const std::string& uuid) const;

  std::string path_;
};

}  // namespace muster
