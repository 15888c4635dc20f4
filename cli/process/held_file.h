// A file that stays readable for this process and its children even if its name is removed.
#pragma once

#include <functional>
#include <string>

#include "common/base/error.h"
#include "common/base/fd.h"

namespace muster {

// A file that Make or OfText creates disappears when this process ends, even by a crash. All
// failures throw Error.
class HeldFile {
 public:
  // Opens an existing file. Throws kData if it cannot be read.
  static HeldFile Of(const std::string& path);
  // `write` creates the file at the given path. The file has no name when this returns.
  static HeldFile Make(const std::function<void(const std::string& path)>& write);

  // A sealed file in memory with this text, for secrets and for when the disk is full. Only its
  // owner can read it.
  static HeldFile OfText(const std::string& text);

  // /proc/PID/fd/N, valid for this process and its children while this object lives.
  std::string path() const;
  // Keeps the path valid when this process executes another program.
  void KeepOverExec() const;
  // The path for a child that inherits fd() under the same number. Unlike path(), it works even if
  // this process hides its /proc entries (KeepOutOfCoreDumps).
  std::string InheritedPath() const;
  int fd() const { return fd_.get(); }
  // Whether `path` names this same file.
  bool IsAt(const std::string& path) const;

 private:
  explicit HeldFile(UniqueFd fd) : fd_(std::move(fd)) {}

  UniqueFd fd_;
};

class TemporaryFolder {
 public:
  // Creates a folder below $TMPDIR, or /tmp, and removes those of killed processes. Throws
  // Error(kFailure).
  TemporaryFolder();
  // Removes the folder and its contents.
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
  UniqueFd lock_;  // on the folder, held while this process lives
};

// The same error with the path of a held file replaced by a name that the user knows.
Error Renamed(const Error& error, const std::string& path, const std::string& shown);

}  // namespace muster
