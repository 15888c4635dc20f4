// A folder for what a command needs while it runs.
#pragma once

#include <string>

namespace muster {

class TemporaryFolder {
 public:
  // Below $TMPDIR, or /tmp. Throws Error(kFailure).
  TemporaryFolder();
  // Removes it with all that is in it.
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace muster
