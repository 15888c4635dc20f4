#include "common/base/file_lock.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <thread>

#include "common/base/process_identity.h"

namespace muster {
namespace {

std::string Holder() { return fmt::format("pid {} on host {}", ::getpid(), HostName()); }

}  // namespace

FileLock::FileLock(const std::string& path, double wait_s) {
  fd_.Reset(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
  held_ = true;
  if (!fd_.valid()) return;  // who cannot write here will be told so by what he writes next
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(wait_s);
  while (::flock(fd_.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    held_ = std::chrono::steady_clock::now() < end;
    if (!held_) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  if (held_) {
    const std::string text = Holder();
    (void)!::ftruncate(fd_.get(), 0);
    (void)!::pwrite(fd_.get(), text.data(), text.size(), 0);
    return;
  }
  std::array<char, 300> text{};
  const ssize_t size = ::pread(fd_.get(), text.data(), text.size() - 1, 0);
  holder_ = size > 0 ? std::string(text.data(), static_cast<size_t>(size)) : "an unknown process";
}

}  // namespace muster
