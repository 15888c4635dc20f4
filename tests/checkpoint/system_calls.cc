#include "tests/checkpoint/system_calls.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>

namespace muster::testing {
namespace {

struct Watch {
  std::string below;  // empty: nobody watches
  Fault fault = Fault::kNone;
  size_t at = 0;
  int error = 0;
  std::vector<SystemCall> calls;
};

Watch& TheWatch() {
  static Watch watch;
  return watch;
}

template <typename Function>
Function Real(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

std::string PathOf(int fd) {
  char link[64], target[4096] = {};
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  return ::readlink(link, target, sizeof target - 1) > 0 ? target : "";
}

std::string PathAt(int folder, const char* path) {
  if (folder == AT_FDCWD || path[0] == '/') return path;
  return PathOf(folder) + "/" + path;
}

// Notes the call. What is to become of it.
Fault Note(const char* name, const std::string& path, const std::string& to = "") {
  Watch& watch = TheWatch();
  if (watch.below.empty() || !path.starts_with(watch.below)) return Fault::kNone;
  const bool this_one = watch.calls.size() == watch.at;
  watch.calls.push_back({name, path, to});
  if (!this_one || watch.fault == Fault::kNone) return Fault::kNone;
  if (watch.fault == Fault::kKill) ::raise(SIGKILL);
  if (watch.fault == Fault::kError) errno = watch.error;
  return watch.fault;
}

// A half of it, in blocks if it has some.
size_t PartOf(size_t size) { return size >= 8192 ? size / 8192 * 4096 : size / 2; }

}  // namespace

void WatchCalls(const std::string& below, Fault fault, size_t at, int error) {
  TheWatch() = {below, fault, at, error, {}};
}

std::vector<SystemCall> TakeCalls() {
  std::vector<SystemCall> calls = std::move(TheWatch().calls);
  TheWatch() = {};
  return calls;
}

extern "C" {

int open(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(more, mode_t) : 0;
  va_end(more);
  if ((flags & O_CREAT) != 0 && Note("create", path) == Fault::kError) return -1;
  return Real<int (*)(const char*, int, mode_t)>("open")(path, flags, mode);
}

ssize_t write(int fd, const void* data, size_t size) {
  const Fault fault = Note("write", PathOf(fd));
  if (fault == Fault::kError) return -1;
  const auto real = Real<ssize_t (*)(int, const void*, size_t)>("write");
  if (fault != Fault::kKillInside) return real(fd, data, size);
  (void)!real(fd, data, PartOf(size));
  ::raise(SIGKILL);
  return -1;
}

ssize_t pwrite(int fd, const void* data, size_t size, off_t at) {
  const Fault fault = Note("write", PathOf(fd));
  if (fault == Fault::kError) return -1;
  const auto real = Real<ssize_t (*)(int, const void*, size_t, off_t)>("pwrite");
  if (fault != Fault::kKillInside) return real(fd, data, size, at);
  (void)!real(fd, data, PartOf(size), at);
  ::raise(SIGKILL);
  return -1;
}

int fsync(int fd) {
  if (Note("fsync", PathOf(fd)) == Fault::kError) return -1;
  return Real<int (*)(int)>("fsync")(fd);
}

int ftruncate(int fd, off_t size) {
  if (Note("truncate", PathOf(fd)) == Fault::kError) return -1;
  return Real<int (*)(int, off_t)>("ftruncate")(fd, size);
}

int close(int fd) {
  // Of folders and of what is read it does not matter.
  const int flags = ::fcntl(fd, F_GETFL);
  const bool writes = flags >= 0 && (flags & O_ACCMODE) != O_RDONLY;
  const bool fails = writes && Note("close", PathOf(fd)) == Fault::kError;
  const int result = Real<int (*)(int)>("close")(fd);
  return fails ? -1 : result;
}

int rename(const char* from, const char* to) {
  if (Note("rename", from, to) == Fault::kError) return -1;
  return Real<int (*)(const char*, const char*)>("rename")(from, to);
}

int mkdir(const char* path, mode_t mode) {
  if (Note("mkdir", path) == Fault::kError) return -1;
  return Real<int (*)(const char*, mode_t)>("mkdir")(path, mode);
}

int unlinkat(int folder, const char* path, int flags) {
  if (Note("remove", PathAt(folder, path)) == Fault::kError) return -1;
  return Real<int (*)(int, const char*, int)>("unlinkat")(folder, path, flags);
}

int remove(const char* path) {
  if (Note("remove", path) == Fault::kError) return -1;
  return Real<int (*)(const char*)>("remove")(path);
}

}  // extern "C"

}  // namespace muster::testing
