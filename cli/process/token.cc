#include "cli/process/token.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <iterator>

#include "common/base/error.h"
#include "common/base/fd.h"
#include "common/base/resource_limits.h"

namespace muster {

std::string NewToken() {
  unsigned char random[16];
  if (::getrandom(random, sizeof random, 0) != std::ssize(random)) {
    throw Error(ExitCode::kFailure, "cannot get random numbers: {}", ErrorText(errno));
  }
  std::string hex;
  for (const unsigned char byte : random) hex += fmt::format("{:02x}", byte);
  return hex;
}

void WriteTokenFile(const std::string& path, const std::string& token) {
  const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  const std::string line = token + "\n";
  if (!fd.valid() || ::fchmod(fd.get(), 0600) != 0 ||  // regardless of the umask
      ::write(fd.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
    const int error = errno;
    if (fd.valid()) ::unlink(path.c_str());
    throw Error(ExitCode::kUsage, "{}: cannot write the token: {}{}", path, ErrorText(error),
                error == EEXIST ? "; remove it first, or choose another file" : "");
  }
}

}  // namespace muster
