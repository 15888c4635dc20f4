// The secret that every process of a job knows and nobody else: 128 random bits, as 32 hexadecimal
// digits, for the processes of a launch in an anonymous file. Children inherit the descriptor and
// read /proc/self/fd/N, so the token is never in a command line, an environment, or a file with a
// name.
#pragma once

#include <string>

#include "common/base/unique_fd.h"

namespace muster {

// 2 * `bytes` hexadecimal digits from the kernel's random generator.
std::string RandomHex(size_t bytes);

// A new token.
std::string NewToken();

// A new file that only its owner can read, for workers that are started by hand. Throws
// Error(kUsage) if there is a file of this name, or it cannot be written.
void WriteTokenFile(const std::string& path, const std::string& token);

class JobToken {
 public:
  // Throws Error(kFailure) where the system gives no anonymous file.
  explicit JobToken(const std::string& token);

  int fd() const { return fd_.get(); }
  // What a child is told to read, given that it inherits fd() under the same number.
  std::string Path() const;

 private:
  UniqueFd fd_;
};

}  // namespace muster
