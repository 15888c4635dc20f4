// A file that stays readable for this process and its children, whatever becomes of its name.
#pragma once

#include <functional>
#include <string>

#include "common/base/error.h"
#include "common/base/fd.h"

namespace muster {

// Nothing is left of one that was made here, however this process ends. All failures throw Error.
class HeldFile {
 public:
  // Opens an existing file. Throws kData if it cannot be read.
  static HeldFile Of(const std::string& path);
  // `write` makes the file at the path that it is given. It has no name when this returns.
  static HeldFile Make(const std::function<void(const std::string& path)>& write);

  // This text, in memory: for where no disk has room, and for secrets. Only its owner can read it,
  // and nobody can change it any more.
  static HeldFile OfText(const std::string& text);

  // For this process and its children, as long as this object lives: /proc/PID/fd/N.
  std::string path() const;
  // Makes the path last when this process becomes another program.
  void KeepOverExec() const;
  // What a child that inherits fd() under the same number reads: also where this process hides what
  // is its own from others (KeepOutOfCoreDumps).
  std::string InheritedPath() const;
  int fd() const { return fd_.get(); }
  // Whether `path` names this very file.
  bool IsAt(const std::string& path) const;

 private:
  explicit HeldFile(UniqueFd fd) : fd_(std::move(fd)) {}

  UniqueFd fd_;
};

class TemporaryFolder {
 public:
  // Below $TMPDIR, or /tmp. Removes what processes that were killed have left there. Throws
  // Error(kFailure).
  TemporaryFolder();
  // Removes it with all that is in it.
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
  UniqueFd lock_;  // of the folder, as long as this process lives
};

// The same error with a name that people know wherever it says a held file's path.
Error Renamed(const Error& error, const std::string& path, const std::string& shown);

}  // namespace muster
