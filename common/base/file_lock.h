// A file that says who uses something, for as long as he does.
#pragma once

#include <string>

#include "common/base/unique_fd.h"

namespace muster {

// A lock that ends with its process, however it ends. The file stays, with the words of the last
// one who had it.
class FileLock {
 public:
  // Makes `path` where it is missing and locks it, waiting up to `wait_s` for whoever has it now.
  // File systems without locks go without: then everybody gets it.
  FileLock(const std::string& path, double wait_s);

  // Whether it was got. If not, who has it: "pid 42 on host lab3".
  bool held() const { return held_; }
  const std::string& holder() const { return holder_; }

 private:
  UniqueFd fd_;
  bool held_ = false;
  std::string holder_;
};

}  // namespace muster
