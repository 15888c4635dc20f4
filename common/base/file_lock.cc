#include "common/base/file_lock.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "common/base/process_identity.h"

namespace muster {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kInterval{20};
// From having the lock to having said so: the other one may wait for a processor.
constexpr std::chrono::seconds kUntilSaid{2};

std::string On(const std::string& host) { return " on host " + host; }

void SayWho(int fd) {
  // The line alone counts: what is behind it may still be an earlier one's.
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

// Whether it may be who has the lock. What an earlier one left names a process that has ended.
bool MayHold(const std::string& text) {
  const std::string host = On(HostName());
  if (!text.starts_with("pid ") || !text.ends_with(host)) return !text.empty();
  const auto pid = static_cast<pid_t>(std::atol(text.c_str() + 4));
  return pid > 0 && (::kill(pid, 0) == 0 || errno == EPERM);
}

// Whoever has just got the lock says who he is a moment later.
std::string HolderOf(int fd) {
  std::string text = Read(fd);
  for (const auto end = Clock::now() + kUntilSaid; !MayHold(text) && Clock::now() < end;) {
    std::this_thread::sleep_for(kInterval);
    text = Read(fd);
  }
  return text.empty() ? "an unknown process" : text;
}

}  // namespace

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

FileLock::FileLock(const std::string& path, double wait_s) {
  fd_.Reset(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
  held_ = true;
  if (!fd_.valid()) return;  // who cannot write here will be told so by what he writes next
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
