#include "tests/checkpoint/interposed_calls.h"

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

Fault OnFile(const char* name, int fd) {
  return WatchesCalls() ? OnCall(name, PathOf(fd), "") : Fault::kNone;
}

bool Fails(const char* name, const std::string& path, const std::string& to = "") {
  return WatchesCalls() && OnCall(name, path, to) == Fault::kError;
}

// Half of the data, rounded to blocks if there are any.
size_t PartOf(size_t size) { return size >= 8192 ? size / 8192 * 4096 : size / 2; }

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(more, mode_t) : 0;
  va_end(more);
  static const auto real = Real<int (*)(const char*, int, mode_t)>("open");
  if ((flags & O_CREAT) != 0 && Fails("create", path)) return -1;
  return real(path, flags, mode);
}

ssize_t write(int fd, const void* data, size_t size) {
  static const auto real = Real<ssize_t (*)(int, const void*, size_t)>("write");
  const Fault fault = OnFile("write", fd);
  if (fault == Fault::kError) return -1;
  if (fault != Fault::kKillInside) return real(fd, data, size);
  (void)!real(fd, data, PartOf(size));
  ::raise(SIGKILL);
  return -1;
}

ssize_t pwrite(int fd, const void* data, size_t size, off_t at) {
  static const auto real = Real<ssize_t (*)(int, const void*, size_t, off_t)>("pwrite");
  const Fault fault = OnFile("write", fd);
  if (fault == Fault::kError) return -1;
  if (fault != Fault::kKillInside) return real(fd, data, size, at);
  (void)!real(fd, data, PartOf(size), at);
  ::raise(SIGKILL);
  return -1;
}

int fsync(int fd) {
  static const auto real = Real<int (*)(int)>("fsync");
  if (OnFile("fsync", fd) == Fault::kError) return -1;
  return real(fd);
}

int ftruncate(int fd, off_t size) {
  static const auto real = Real<int (*)(int, off_t)>("ftruncate");
  if (OnFile("truncate", fd) == Fault::kError) return -1;
  return real(fd, size);
}

int close(int fd) {
  static const auto real = Real<int (*)(int)>("close");
  // Folders and files that are only read do not matter.
  const int flags = WatchesCalls() ? ::fcntl(fd, F_GETFL) : -1;
  const bool writes = flags >= 0 && (flags & O_ACCMODE) != O_RDONLY;
  const bool fails = writes && OnFile("close", fd) == Fault::kError;
  const int error = errno;
  const int result = real(fd);
  if (!fails) return result;
  errno = error;
  return -1;
}

int rename(const char* from, const char* to) {
  static const auto real = Real<int (*)(const char*, const char*)>("rename");
  if (Fails("rename", from, to)) return -1;
  return real(from, to);
}

int mkdir(const char* path, mode_t mode) {
  static const auto real = Real<int (*)(const char*, mode_t)>("mkdir");
  if (Fails("mkdir", path)) return -1;
  return real(path, mode);
}

int unlinkat(int folder, const char* path, int flags) {
  static const auto real = Real<int (*)(int, const char*, int)>("unlinkat");
  if (WatchesCalls() && Fails("remove", PathAt(folder, path))) return -1;
  return real(folder, path, flags);
}

int remove(const char* path) {
  static const auto real = Real<int (*)(const char*)>("remove");
  if (Fails("remove", path)) return -1;
  return real(path);
}

}  // extern "C"

}  // namespace muster::testing
