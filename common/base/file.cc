#include "common/base/file.h"

#include <fmt/core.h>
#include <linux/magic.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <sstream>

#include "common/base/error.h"
#include "common/base/resource_limits.h"

namespace muster {
namespace {

// Names the kind of a special file; "" for a plain file.
const char* NameOfSpecialFile(mode_t mode) {
  if (S_ISREG(mode)) return "";
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

// Whether the descriptor refers to a virtual file of the kernel. Such files have no length, and
// reading some of them blocks.
bool IsMadeUp(int fd, const struct stat& status) {
  struct statfs system {};
  if (status.st_size > 0 || ::fstatfs(fd, &system) != 0) return false;
  return system.f_type == PROC_SUPER_MAGIC || system.f_type == SYSFS_MAGIC;
}

// Waits until the pipe has data or its writer has closed it.
void Await(int fd, const std::string& path, double patience_s) {
  pollfd request{.fd = fd, .events = POLLIN};
  int ready = 0;
  do {
    ready = ::poll(&request, 1, static_cast<int>(patience_s * 1000));
  } while (ready < 0 && errno == EINTR);
  if (ready > 0) return;
  throw Error(ExitCode::kUsage, "{}: no data for {:g} s: is this a pipe without a writer?", path,
              patience_s);
}

// The owner of what this process makes in the folder: another user than itself where the file
// system maps owners, as sshfs does. -1 if it can make nothing there.
uid_t OwnerOfNewFiles(const std::string& folder) {
  const std::string path = fmt::format("{}/.owner-{}", folder, ::getpid());
  const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  struct stat made {};
  const bool is_known = fd.valid() && ::fstat(fd.get(), &made) == 0;
  if (fd.valid()) ::unlink(path.c_str());
  return is_known ? made.st_uid : static_cast<uid_t>(-1);
}

}  // namespace

UniqueFd OpenPlainFile(const std::string& path, const char* expected, int flags, mode_t mode) {
  // The names of descriptors in /proc are links that nobody else can make.
  const int links = (flags & O_CREAT) != 0 && !path.starts_with("/proc/") ? O_NOFOLLOW : 0;
  // O_NONBLOCK: opening a pipe must not block.
  UniqueFd fd(::open(path.c_str(), flags | links | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, mode));
  const int error = errno;
  struct stat status {};
  if (!fd.valid() && links != 0 && error == ELOOP && ::lstat(path.c_str(), &status) == 0 &&
      S_ISLNK(status.st_mode)) {
    throw Error(ExitCode::kData,
                "{}: is a symbolic link, which is not followed when writing: expected {}; remove "
                "the link",
                path, expected);
  }
  // Some special files cannot be opened this way: a socket, or a folder for writing.
  const bool is_there =
      (fd.valid() ? ::fstat(fd.get(), &status) : ::stat(path.c_str(), &status)) == 0;
  if (is_there) {
    if (const std::string special = NameOfSpecialFile(status.st_mode); !special.empty()) {
      throw Error(ExitCode::kData, "{}: is {}, expected {}", path, special, expected);
    }
  }
  if (fd.valid() && IsMadeUp(fd.get(), status)) {
    throw Error(ExitCode::kData, "{}: is a virtual file of the kernel, expected {}", path,
                expected);
  }
  errno = error;
  return fd;
}

void RequireTrustedFolder(const char* what, const std::string& path) {
  for (const bool follow : {false, true}) {
    struct stat seen {};
    if ((follow ? ::stat(path.c_str(), &seen) : ::lstat(path.c_str(), &seen)) != 0) return;
    const bool is_shared = !S_ISLNK(seen.st_mode) && (seen.st_mode & S_IWGRP) != 0 &&
                           (seen.st_mode & S_IWOTH) == 0 &&
                           (seen.st_gid == ::getegid() || ::group_member(seen.st_gid) != 0);
    if (seen.st_uid == ::geteuid() || seen.st_uid == 0 || is_shared) continue;
    if (!S_ISLNK(seen.st_mode) && seen.st_uid == OwnerOfNewFiles(path)) continue;
    throw Error(ExitCode::kUsage,
                "{} {} belongs to user {} and is not shared with a group of yours: its owner could "
                "lead your files elsewhere; expected one of your own (a copy will do: cp -r)",
                what, path, seen.st_uid);
  }
}

std::ifstream ReadPlainFile(const std::string& path) {
  std::ifstream file;
  // Open the file that was checked; its name may refer to another file by now.
  if (const UniqueFd fd = OpenPlainFile(path); fd.valid()) {
    file.open("/proc/self/fd/" + std::to_string(fd.get()), std::ios::binary);
  } else {
    file.setstate(std::ios::failbit);
  }
  return file;
}

std::string ReadFileIfThere(const std::string& path) {
  std::ostringstream text;
  try {
    text << ReadPlainFile(path).rdbuf();
  } catch (const Error&) {  // the name belongs to a folder, a pipe or a device
  }
  return text.str();
}

std::string ReadTextFile(const std::string& path, const ReadTextOptions& options) {
  constexpr size_t kBlock = 1 << 16;
  // O_NONBLOCK: opening a pipe must not wait for a writer.
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat status {};
  if (!fd.valid() || ::fstat(fd.get(), &status) != 0) {
    throw Error(ExitCode::kUsage, "{}: cannot be read: {}", path, ErrorText(errno));
  }
  if (S_ISDIR(status.st_mode)) {
    throw Error(ExitCode::kUsage, "{}: is a directory, expected a file", path);
  }
  const bool may_wait = !S_ISREG(status.st_mode);
  std::string text;
  for (size_t size = 0; size <= options.most_bytes;) {
    if (may_wait) Await(fd.get(), path, options.patience_s);
    text.resize(size + kBlock);
    const ssize_t n = ::read(fd.get(), text.data() + size, kBlock);
    const int error = errno;
    text.resize(size += static_cast<size_t>(n > 0 ? n : 0));
    if (n == 0) return text;
    if (n > 0 || error == EINTR || (error == EAGAIN && may_wait)) continue;
    if (error == EAGAIN) Await(fd.get(), path, options.patience_s);  // a virtual file of the kernel
    if (error != EAGAIN) {
      throw Error(ExitCode::kUsage, "{}: cannot be read: {}", path, ErrorText(error));
    }
  }
  throw Error(ExitCode::kUsage, "{}: larger than {} MiB: expected a text file", path,
              options.most_bytes >> 20);
}

Locked TryLock(int fd, LockMode mode) {
  const int how = mode == LockMode::kShared ? LOCK_SH : LOCK_EX;
  int failed;
  do {
    failed = ::flock(fd, how | LOCK_NB);
  } while (failed != 0 && errno == EINTR);
  if (failed == 0) return Locked::kYes;
  return errno == EWOULDBLOCK ? Locked::kTaken : Locked::kCannot;
}

bool IsStillAt(int fd, const std::string& path) {
  struct stat ours {
  }, theirs{};
  return ::fstat(fd, &ours) == 0 && ::lstat(path.c_str(), &theirs) == 0 &&
         ours.st_dev == theirs.st_dev && ours.st_ino == theirs.st_ino;
}

}  // namespace muster
