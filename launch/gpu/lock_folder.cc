#include "launch/gpu/lock_folder.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <ctime>
#include <utility>

#include "common/base/error.h"
#include "common/base/file_lock.h"
#include "common/base/resource_limits.h"

namespace muster {
namespace {

constexpr int kAttempts = 100;  // against others who make and remove the same file

bool IsShared(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) return false;
  return (status.st_mode & S_ISVTX) != 0 && (status.st_mode & S_IWOTH) != 0;
}

// A name that no other process has, now or later.
std::string TemporaryName(const std::string& path) {
  static std::atomic<unsigned> count = 0;
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return fmt::format("{}.{}-{}-{}.new", path, ::getpid(), now.tv_sec * 1'000'000'000 + now.tv_nsec,
                     count++);
}

// A new file under a name that nobody looks for.
UniqueFd MakeFile(const std::string& path) {
  UniqueFd file(
      ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY, 0644));
  // Whatever the umask is: the others must be able to read it.
  if (!file.valid() || ::fchmod(file.get(), 0644) != 0) {
    const int error = errno;
    if (file.valid()) ::unlink(path.c_str());
    throw Error(ExitCode::kFailure, "cannot make {}, a lock for the cards of this host: {}", path,
                ErrorText(error));
  }
  return file;
}

// Gives it its real name, at once and complete. False if there is one of that name.
bool Publish(const std::string& temporary, const std::string& path) {
  const bool linked = ::link(temporary.c_str(), path.c_str()) == 0;
  const int error = errno;
  ::unlink(temporary.c_str());
  if (!linked && error != EEXIST) {
    throw Error(ExitCode::kFailure, "cannot make {}, a lock for the cards of this host: {}", path,
                ErrorText(error));
  }
  return linked;
}

}  // namespace

LockFolder::LockFolder(std::string path) : path_(std::move(path)) {
  if (IsShared(path_)) return;
  throw Error(ExitCode::kFailure,
              "{}: expected a folder in which every user may make files and nobody may remove "
              "another's (mode 1777), as the locks of this host's cards need it",
              path_);
}

LockFolder LockFolder::OfHost() {
  return IsShared("/run/lock") ? LockFolder("/run/lock") : LockFolder("/tmp");
}

UniqueFd LockFolder::Open(const std::string& name) const {
  const std::string path = File(name);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    // Neither a link nor a pipe that somebody put there leads elsewhere, or makes us wait.
    UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY));
    if (file.valid()) {
      struct stat status {};
      if (::fstat(file.get(), &status) == 0 && S_ISREG(status.st_mode)) return file;
      throw Error(ExitCode::kFailure,
                  "{}: expected a file to lock, found something else; remove it", path);
    }
    if (errno != ENOENT) {
      throw Error(ExitCode::kFailure, "cannot open {}, a lock for the cards of this host: {}", path,
                  ErrorText(errno));
    }
    const std::string temporary = TemporaryName(path);
    file = MakeFile(temporary);
    (void)Publish(temporary, path);
  }
  throw Error(ExitCode::kFailure, "{} is removed again and again: something cleans up {} too often",
              path, path_);
}

UniqueFd LockFolder::MakeLocked(const std::string& name, const std::string& text) const {
  const std::string temporary = TemporaryName(File(name));
  UniqueFd file = MakeFile(temporary);
  const auto size = static_cast<ssize_t>(text.size());
  if (TryLock(file.get()) != Locked::kYes ||
      ::write(file.get(), text.data(), text.size()) != size) {
    const int error = errno;
    ::unlink(temporary.c_str());
    throw Error(ExitCode::kFailure, "cannot write {}, this job's place among others: {}", temporary,
                ErrorText(error));
  }
  if (!Publish(temporary, File(name))) {
    throw Error(ExitCode::kFailure, "{} is there already, and should have been new", File(name));
  }
  return file;
}

}  // namespace muster
