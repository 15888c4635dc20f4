#include "common/base/atomic_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "common/base/error.h"
#include "common/base/resource_limits.h"

namespace muster {

void WriteFileAtomically(const std::string& path, const std::string& text) {
  const std::string temporary = path + ".partial";
  const auto fail = [&](const char* what) {
    const int error = errno;
    ::unlink(temporary.c_str());
    throw Error(ExitCode::kFailure, "{}: cannot {}: {}", path, what, ErrorText(error));
  };
  const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) fail("be created");
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = ::write(fd, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      ::close(fd);
      fail("be written");
    }
    done += static_cast<size_t>(n);
  }
  const bool synced = ::fsync(fd) == 0;
  if (::close(fd) != 0 || !synced) fail("be written");
  if (::rename(temporary.c_str(), path.c_str()) != 0) fail("be put in place");
}

}  // namespace muster
