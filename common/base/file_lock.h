// Keeps a second process out of a folder, on any file system.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

#include "common/base/fd.h"
#include "common/base/file.h"

namespace muster {

struct LockTerms {
  double wait_s = 0;  // for the current holder
  // Tests change these: how a file is locked, how often a lease is refreshed, and how long a lease
  // of another host may go without that.
  Locked (*lock)(int fd, LockMode mode) = TryLock;
  std::chrono::milliseconds beat = std::chrono::seconds(2);
  std::chrono::milliseconds silence = std::chrono::seconds(20);
};

// A lock file that names its holder. The file remains after unlocking, with the last holder's name.
//
// Where flock(2) does not keep out other processes, or only those of this host (Lustre and NFS
// mounted without locks, sshfs), a lease does: the file PATH.lease-N, which its holder was the
// first to create. It names the holder and is refreshed. Nobody may create the next number while
// the holder lives: on this host its process tells, and on another one the refreshing. The holder
// removes the leases before its own, and at the end only marks its own as free, so that numbers
// only grow. A holder that was suspended for so long that another process has taken over ends its
// process, because it must not write any more.
class FileLock {
 public:
  // Creates `path` if it is missing and locks it, whoever owns it, and waits for the holder. Takes
  // up to `silence` longer to find out that a holder on another host is gone, if it needs a lease.
  // Every process gets the lock where it cannot create the file, because it cannot create another
  // one either. Throws Error(kUsage) if there is a file that it cannot open.
  FileLock(const std::string& path, const LockTerms& terms);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

  // Whether this process holds the lock. If not, holder() names the holder: "pid 42 on host lab3".
  bool held() const { return held_; }
  const std::string& holder() const { return holder_; }

  // The file's current path, even if its directory was renamed; "" if it has been removed.
  std::string PathNow() const;

  // Removes the file and its leases. Only for the holder.
  static void Remove(const std::string& path);

 private:
  // Returns whether the file could be locked, or is by another process (held_).
  bool TakeFile();
  bool Excludes() const;
  void TakeFlock(double wait_s);
  void TakeLease();
  bool CreateLease(uint64_t number);
  void WriteLease(const std::string& text) const;
  void Refresh();

  const std::string path_;
  const LockTerms terms_;
  UniqueFd fd_;
  bool held_ = true;
  std::string holder_;

  uint64_t number_ = 0;  // of the lease; 0: none
  UniqueFd lease_, folder_;
  std::mutex mutex_;
  std::condition_variable_any wakes_;
  std::jthread refresher_;
};

}  // namespace muster
