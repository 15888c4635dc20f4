#include "cli/gpu/lock_folder.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "cli/gpu/process_info.h"
#include "common/base/error.h"
#include "common/base/file.h"
#include "common/base/resource_limits.h"

namespace muster {
namespace {

constexpr int kAttempts = 100;  // in case another process removes the file

bool IsShared(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) return false;
  return (status.st_mode & S_ISVTX) != 0 && (status.st_mode & S_IWOTH) != 0;
}

// The UUID may contain slashes (MIG-GPU-…/1/0 with older drivers).
std::string GpuName(const std::string& uuid) {
  MUSTER_CHECK(!uuid.empty());
  std::string name = "muster-gpu-";
  for (const char c : uuid) {
    name += std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' ? c : '_';
  }
  return name;
}
std::string LockName(const std::string& uuid) { return GpuName(uuid) + ".lock"; }

struct AbstractAddress {
  explicit AbstractAddress(const std::string& name) {
    const size_t length = std::min(name.size(), sizeof address.sun_path - 1);
    name.copy(address.sun_path + 1, length);  // a first byte of 0 makes it abstract
    size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }

  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  socklen_t size;
};

UniqueFd LocalSocket() {
  return UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

// Returns an invalid descriptor if another process has this name. Listens, so that others can see
// who has it.
UniqueFd BindName(const std::string& name) {
  const AbstractAddress address(name);
  UniqueFd socket = LocalSocket();
  if (::bind(socket.get(), address.get(), address.size) == 0 &&
      ::listen(socket.get(), SOMAXCONN) == 0) {
    return socket;
  }
  if (errno == EADDRINUSE) return UniqueFd();
  throw Error(ExitCode::kFailure,
              "cannot bind the socket @{}, a lock for the GPUs of this host: {}", name,
              ErrorText(errno));
}

std::string HolderText(const ProcessText& holder) {
  return fmt::format("{}'s {} (pid {})", holder.user, holder.command, holder.pid);
}

// Describes who has bound a name; "" if nobody has.
std::string NameHolder(const std::string& name) {
  const AbstractAddress address(name);
  const UniqueFd socket = LocalSocket();
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::connect(socket.get(), address.get(), address.size) == 0 &&
      ::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0) {
    const ProcessText holder = DescribeProcess(peer.pid);
    return holder.seen
               ? HolderText(holder)
               : fmt::format("a process of {} that is not visible from here", UserName(peer.uid));
  }
  // One that does not listen is not a job.
  std::ifstream sockets("/proc/net/unix");
  for (std::string line; std::getline(sockets, line);) {
    if (line.ends_with(" @" + name)) {
      return fmt::format("a process with the socket @{} (as root, `ss -xap` shows it)", name);
    }
  }
  return "";
}

bool HasLocked(const std::filesystem::path& process, const struct stat& file) {
  std::error_code error;
  for (std::filesystem::directory_iterator at(process / "fd", error), end; !error && at != end;
       at.increment(error)) {
    struct stat open {};
    if (::stat(at->path().c_str(), &open) != 0) continue;
    if (open.st_dev != file.st_dev || open.st_ino != file.st_ino) continue;
    std::ifstream info(process / "fdinfo" / at->path().filename());
    for (std::string line; std::getline(info, line);) {
      if (line.starts_with("lock:") && line.find("FLOCK") != std::string::npos) return true;
    }
  }
  return false;
}

// The process that has the lock now. Files of other users' processes are not visible.
pid_t SeenHolder(const struct stat& file) {
  std::error_code error;
  for (std::filesystem::directory_iterator at("/proc", error), end; !error && at != end;
       at.increment(error)) {
    const pid_t pid = std::atoi(at->path().filename().c_str());
    if (pid > 0 && HasLocked(at->path(), file)) return pid;
  }
  return 0;
}

// The process that took the lock. It may have ended since and left the lock to a child.
pid_t ListedHolder(const struct stat& file) {
  const std::string wanted =
      fmt::format("{:02x}:{:02x}:{}", major(file.st_dev), minor(file.st_dev), file.st_ino);
  std::ifstream locks("/proc/locks");
  for (std::string line; std::getline(locks, line);) {
    std::istringstream words(line);
    std::string number, kind, advisory, mode, inode;
    pid_t pid = 0;
    words >> number >> kind >> advisory >> mode >> pid >> inode;
    if (kind == "FLOCK" && inode == wanted) return pid;
  }
  return 0;
}

}  // namespace

LockFolder::LockFolder(std::string path) : path_(std::move(path)) {
  if (IsShared(path_)) return;
  throw Error(ExitCode::kFailure,
              "{}: the GPU locks of this host need a folder with mode 1777, in which all users may "
              "make files but not remove those of others",
              path_);
}

LockFolder LockFolder::OfHost() {
  return IsShared("/run/lock") ? LockFolder("/run/lock") : LockFolder("/tmp");
}

// Opens without O_CREAT, which fs.protected_regular forbids on another user's file in such a
// folder, and only for reading, because other users' files are not writable. If there is a link or
// a pipe in its place, opening it must not follow the link or block.
UniqueFd LockFolder::Open(const std::string& name) const {
  return UniqueFd(
      ::open(File(name).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY));
}

UniqueFd LockFolder::Make(const std::string& name, const std::string& text) const {
  const std::string path = File(name);
  std::string temporary = path + ".XXXXXX.new";
  UniqueFd file(::mkostemps(temporary.data(), 4, O_CLOEXEC));
  // Other users must be able to read the file, whatever the umask is. It gets its name only when it
  // is complete.
  const bool complete =
      file.valid() && ::fchmod(file.get(), 0644) == 0 && TryLock(file.get()) == Locked::kYes &&
      ::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const bool linked = complete && ::link(temporary.c_str(), path.c_str()) == 0;
  const int error = errno;
  if (file.valid()) ::unlink(temporary.c_str());
  if (linked) return file;
  if (complete && error == EEXIST) return UniqueFd();
  throw Error(ExitCode::kFailure, "cannot create {}, a lock for the GPUs of this host: {}", path,
              ErrorText(error));
}

// Another folder, in a test or another container, is another set of locks.
std::string LockFolder::SocketName(const std::string& uuid) const {
  struct stat status {};
  (void)::stat(path_.c_str(), &status);
  return fmt::format("{:x}.{:x}.{}", status.st_dev, status.st_ino, GpuName(uuid));
}

GpuLock LockFolder::LockGpu(const std::string& uuid) const {
  GpuLock lock{.file = LockFile(LockName(uuid)), .name = {}};
  if (lock.file.valid()) lock.name = BindName(SocketName(uuid));
  return lock;
}

UniqueFd LockFolder::LockFile(const std::string& name) const {
  const std::string path = File(name);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    UniqueFd file = Open(name);
    if (!file.valid() && errno == ENOENT) {
      file = Make(name, "");
      if (file.valid()) return file;
      continue;
    }
    struct stat status {};
    if (!file.valid() || ::fstat(file.get(), &status) != 0) {
      throw Error(ExitCode::kFailure, "cannot open {}, a lock for the GPUs of this host: {}", path,
                  ErrorText(errno));
    }
    if (!S_ISREG(status.st_mode)) {
      throw Error(ExitCode::kFailure,
                  "{}: expected a regular file to lock, found something else; remove it", path);
    }
    const Locked locked = TryLock(file.get());
    if (locked == Locked::kTaken) return UniqueFd();
    if (locked == Locked::kCannot) {
      throw Error(ExitCode::kFailure, "cannot lock {}: {}", path, ErrorText(errno));
    }
    if (IsStillAt(file.get(), path)) return file;
  }
  throw Error(ExitCode::kFailure, "{} keeps disappearing: some program cleans up {} too often",
              path, path_);
}

std::string LockFolder::LockHolder(const std::string& uuid) const {
  const UniqueFd file = Open(LockName(uuid));
  struct stat status {};
  if (!file.valid() || ::fstat(file.get(), &status) != 0 ||
      TryLock(file.get(), LockMode::kShared) != Locked::kTaken) {
    return NameHolder(SocketName(uuid));
  }
  ProcessText holder = DescribeProcess(SeenHolder(status));
  if (!holder.seen) holder = DescribeProcess(ListedHolder(status));
  return holder.seen ? HolderText(holder) : "a process that is not visible from here";
}

}  // namespace muster
