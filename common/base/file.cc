#include "common/base/file.h"

#include <fmt/core.h>
#include <linux/magic.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "common/base/error.h"
#include "common/base/process.h"
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

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kInterval{20};
// The longest time between taking the lock and writing the holder's name. The holder may have to
// wait for a CPU.
constexpr std::chrono::seconds kUntilSaid{2};

std::string On(const std::string& host) { return " on host " + host; }

void SayWho(int fd) {
  // Readers use only the first line. Anything after it may be left over from an earlier holder.
  const std::string text = fmt::format("pid {}{}\n", ::getpid(), On(HostName()));
  (void)!::pwrite(fd, text.data(), text.size(), 0);
  (void)!::ftruncate(fd, static_cast<off_t>(text.size()));
}

std::string Read(int fd) {
  std::array<char, 300> text{};
  const ssize_t size = ::pread(fd, text.data(), text.size() - 1, 0);
  const std::string all(text.data(), static_cast<size_t>(std::max<ssize_t>(size, 0)));
  return all.substr(0, all.find('\n'));
}

// Whether this text may name the current holder. An earlier holder's process has usually ended.
bool MayHold(const std::string& text) {
  const std::string host = On(HostName());
  if (!text.starts_with("pid ") || !text.ends_with(host)) return !text.empty();
  const auto pid = static_cast<pid_t>(std::atol(text.c_str() + 4));
  return pid > 0 && (::kill(pid, 0) == 0 || errno == EPERM);
}

// Returns the name of the current holder. Waits for it, because a new holder writes its name
// shortly after taking the lock.
std::string HolderOf(int fd) {
  std::string text = Read(fd);
  for (const auto end = Clock::now() + kUntilSaid; !MayHold(text) && Clock::now() < end;) {
    std::this_thread::sleep_for(kInterval);
    text = Read(fd);
  }
  // A holder that may only read the file cannot write its name.
  return MayHold(text) ? text : "an unknown process";
}

// Another user's lock may be read-only, which is enough to take it, and the kernel may forbid
// O_CREAT for it (fs.protected_regular). Returns none if the file cannot be created.
UniqueFd OpenLock(const std::string& path) {
  int error = 0;
  for (const int flags : {O_RDWR, O_RDWR | O_CREAT, O_RDONLY}) {
    UniqueFd fd(::open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666));
    if (fd.valid()) return fd;
    error = errno;
  }
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) return {};
  throw Error(ExitCode::kUsage,
              "{}: the lock of user {} cannot be opened ({}), so nobody knows whether it is held; "
              "expected a file that you may read",
              path, status.st_uid, S_ISLNK(status.st_mode) ? "a symbolic link" : ErrorText(error));
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

FileLock::FileLock(const std::string& path, double wait_s) : fd_(OpenLock(path)), held_(true) {
  if (!fd_.valid()) return;  // no write permission: the caller's next write fails
  const auto end = Clock::now() + std::chrono::duration<double>(wait_s);
  while (TryLock(fd_.get()) == Locked::kTaken) {
    held_ = Clock::now() < end;
    if (!held_) break;
    std::this_thread::sleep_for(kInterval);
  }
  if (held_) {
    SayWho(fd_.get());
  } else {
    holder_ = HolderOf(fd_.get());
  }
}

std::string FileLock::PathNow() const {
  std::error_code error;
  const std::filesystem::path path =
      std::filesystem::read_symlink(fmt::format("/proc/self/fd/{}", fd_.get()), error);
  return !error && IsStillAt(fd_.get(), path) ? path.string() : "";
}

}  // namespace muster
