#include "cli/job/job_token.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "common/base/error.h"
#include "common/base/resource_limits.h"

namespace muster {

std::string RandomHex(size_t bytes) {
  std::vector<unsigned char> random(bytes);
  size_t have = 0;
  while (have < bytes) {
    ssize_t got = ::getrandom(random.data() + have, bytes - have, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw Error(ExitCode::kFailure, "no random numbers: {}", ErrorText(errno));
    have += static_cast<size_t>(got);
  }
  std::string hex;
  for (unsigned char byte : random) hex += fmt::format("{:02x}", byte);
  return hex;
}

std::string NewToken() { return RandomHex(16); }

void WriteTokenFile(const std::string& path, const std::string& token) {
  const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  const std::string line = token + "\n";
  if (!fd.valid() || ::fchmod(fd.get(), 0600) != 0 ||  // whatever the umask
      ::write(fd.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
    const int error = errno;
    if (fd.valid()) ::unlink(path.c_str());
    throw Error(ExitCode::kUsage, "{}: the token cannot be written: {}{}", path, ErrorText(error),
                error == EEXIST ? "; remove it first, or choose another file" : "");
  }
}

JobToken::JobToken(const std::string& token)
    : fd_(::memfd_create("muster-token", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
  if (!fd_.valid() || ::fchmod(fd_.get(), 0600) != 0 ||  // as readers of tokens expect it
      ::write(fd_.get(), token.data(), token.size()) != static_cast<ssize_t>(token.size()) ||
      // A child could otherwise replace the token under its siblings.
      ::fcntl(fd_.get(), F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) !=
          0) {
    throw Error(ExitCode::kFailure, "cannot make the job's token: {}", ErrorText(errno));
  }
}

std::string JobToken::Path() const { return fmt::format("/proc/self/fd/{}", fd_.get()); }

}  // namespace muster
