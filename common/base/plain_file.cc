#include "common/base/plain_file.h"

#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <cerrno>

#include "common/base/error.h"

namespace muster {
namespace {

// "" of a plain file.
const char* NameOfSpecialFile(mode_t mode) {
  if (S_ISREG(mode)) return "";
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

// It has no length, and some of these wait when they are read.
bool IsMadeUp(int fd, const struct stat& status) {
  struct statfs system {};
  if (status.st_size > 0 || ::fstatfs(fd, &system) != 0) return false;
  return system.f_type == PROC_SUPER_MAGIC || system.f_type == SYSFS_MAGIC;
}

}  // namespace

UniqueFd OpenPlainFile(const std::string& path, const char* expected, int flags, mode_t mode) {
  // Not waiting for the other end, should it be a pipe.
  UniqueFd fd(::open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, mode));
  const int error = errno;
  struct stat status {};
  // Some that are not plain cannot be opened in this way: a folder to be written, a socket.
  const bool is_there =
      (fd.valid() ? ::fstat(fd.get(), &status) : ::stat(path.c_str(), &status)) == 0;
  if (is_there) {
    if (const std::string special = NameOfSpecialFile(status.st_mode); !special.empty()) {
      throw Error(ExitCode::kData, "{}: is {}, expected {}", path, special, expected);
    }
  }
  if (fd.valid() && IsMadeUp(fd.get(), status)) {
    throw Error(ExitCode::kData, "{}: is a file of the kernel's, expected {}", path, expected);
  }
  errno = error;
  return fd;
}

std::ifstream ReadPlainFile(const std::string& path) {
  std::ifstream file;
  // The very file that was looked at, whatever has its name by now.
  if (const UniqueFd fd = OpenPlainFile(path); fd.valid()) {
    file.open("/proc/self/fd/" + std::to_string(fd.get()), std::ios::binary);
  } else {
    file.setstate(std::ios::failbit);
  }
  return file;
}

}  // namespace muster
