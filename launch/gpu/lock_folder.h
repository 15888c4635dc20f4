// Where all users of this host meet to share its cards: files whose locks the kernel keeps.
#pragma once

#include <sys/types.h>

#include <string>

#include "common/base/unique_fd.h"

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

  // Opens a file of anybody's to lock it, and makes it if it is not there. It is first opened
  // without O_CREAT and for reading: with fs.protected_regular the kernel refuses O_CREAT on
  // another user's file in such a folder, and nobody may write to another's. flock asks for
  // neither. Throws Error(kFailure).
  UniqueFd Open(const std::string& name) const;

  // Makes a new file that everybody may read and this user alone may write, with a lock on it from
  // its first moment; `text` is in it. Throws Error(kFailure).
  UniqueFd MakeLocked(const std::string& name, const std::string& text) const;

 private:
  std::string path_;
};

}  // namespace muster
