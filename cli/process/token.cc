#include "cli/process/token.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "common/base/error.h"
#include "common/base/fd.h"
#include "common/base/resource_limits.h"
#include "common/link/secret.h"

namespace muster {

std::string NewToken() { return RandomDigits(); }

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
