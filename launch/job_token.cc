#include "launch/job_token.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "common/error.h"

namespace muster {

std::string RandomHex(size_t bytes) {
  std::vector<unsigned char> random(bytes);
  size_t have = 0;
  while (have < bytes) {
    ssize_t got = ::getrandom(random.data() + have, bytes - have, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw Error(ExitCode::kFailure, "no random numbers: {}", std::strerror(errno));
    have += static_cast<size_t>(got);
  }
  std::string hex;
  for (unsigned char byte : random) hex += fmt::format("{:02x}", byte);
  return hex;
}

JobToken::JobToken() : fd_(::memfd_create("muster-token", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
  std::string token = RandomHex(16);
  if (!fd_.valid() ||
      ::write(fd_.get(), token.data(), token.size()) != static_cast<ssize_t>(token.size()) ||
      // A child could otherwise replace the token under its siblings.
      ::fcntl(fd_.get(), F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) !=
          0) {
    throw Error(ExitCode::kFailure, "cannot make the job's token: {}", std::strerror(errno));
  }
}

std::string JobToken::Path() const { return fmt::format("/proc/self/fd/{}", fd_.get()); }

}  // namespace muster
