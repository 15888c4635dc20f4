#include "launch/gpu/card_lock.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "common/base/error.h"
#include "common/base/file_lock.h"
#include "common/base/resource_limits.h"
#include "launch/gpu/process_info.h"

namespace muster {
namespace {

constexpr int kAttempts = 100;  // against somebody who removes the file

// Part of a card's UUID may be a path (older drivers' MIG-GPU-…/1/0).
std::string FileName(const std::string& uuid) {
  std::string name = "muster-gpu-";
  for (const char c : uuid) {
    name += std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' ? c : '_';
  }
  return name + ".lock";
}

bool IsSameFile(const struct stat& one, const struct stat& other) {
  return one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

bool HasLocked(const std::filesystem::path& process, const struct stat& file) {
  std::error_code error;
  for (std::filesystem::directory_iterator at(process / "fd", error), end; !error && at != end;
       at.increment(error)) {
    struct stat open {};
    if (::stat(at->path().c_str(), &open) != 0 || !IsSameFile(open, file)) continue;
    std::ifstream info(process / "fdinfo" / at->path().filename());
    for (std::string line; std::getline(info, line);) {
      if (line.starts_with("lock:") && line.find("FLOCK") != std::string::npos) return true;
    }
  }
  return false;
}

// The one that has it now. The files of other users' processes cannot be seen.
pid_t SeenHolder(const struct stat& file) {
  std::error_code error;
  for (std::filesystem::directory_iterator at("/proc", error), end; !error && at != end;
       at.increment(error)) {
    const pid_t pid = std::atoi(at->path().filename().c_str());
    if (pid > 0 && HasLocked(at->path(), file)) return pid;
  }
  return 0;
}

// The one that took it. It may have ended since and left the lock to a child.
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

std::optional<CardLock> CardLock::Try(const LockFolder& folder, const std::string& uuid) {
  MUSTER_CHECK(!uuid.empty());
  const std::string name = FileName(uuid);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    UniqueFd file = folder.Open(name);
    const Locked locked = TryLock(file.get());
    if (locked == Locked::kTaken) return std::nullopt;
    if (locked == Locked::kCannot) {
      throw Error(ExitCode::kFailure, "cannot lock {}: {}", folder.File(name), ErrorText(errno));
    }
    if (IsStillAt(file.get(), folder.File(name))) return CardLock(std::move(file));
  }
  throw Error(ExitCode::kFailure, "{} is removed again and again: something cleans up {} too often",
              folder.File(name), folder.path());
}

std::string CardLock::HolderText(const LockFolder& folder, const std::string& uuid) {
  const std::string path = folder.File(FileName(uuid));
  const UniqueFd file(
      ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY));
  struct stat status {};
  if (!file.valid() || ::fstat(file.get(), &status) != 0 ||
      TryLock(file.get(), LockMode::kShared) != Locked::kTaken) {
    return "";
  }
  ProcessText holder = DescribeProcess(SeenHolder(status));
  if (!holder.seen) holder = DescribeProcess(ListedHolder(status));
  if (!holder.seen) return "a process that cannot be seen from here";
  return fmt::format("{}'s {} (pid {})", holder.user, holder.command, holder.pid);
}

void CardLock::Release() {
  ::flock(file_.get(), LOCK_UN);
  file_.Reset();
}

}  // namespace muster
