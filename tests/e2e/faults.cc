// Injects faults into a job's programs when preloaded. MUSTER_FAULT selects one:
//   map      muster-worker cannot map shared memory
//   receive  muster-worker cannot receive file descriptors, as if a limit were reached
//   best     muster-server ends while it writes the best weights, after a delay
//   first    muster-server ends while it writes a run's first checkpoint, after a delay. If
//            MUSTER_FAULT_ONCE is set, only unless that file exists, which is then created
//   model    muster-server waits for the file MUSTER_FAULT_ONCE before it writes the last weights
//   flock    muster and muster-server get every lock, as on a file system without locks
//   stop     the first muster-worker that exits is stopped (SIGSTOP) while it does
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

bool IsWanted(const char* fault, const char* program = "muster-worker") {
  const char* const wanted = std::getenv("MUSTER_FAULT");
  return wanted != nullptr && std::strcmp(wanted, fault) == 0 &&
         std::strcmp(program_invocation_short_name, program) == 0;
}

bool IsFile(int fd, const char* part_of_path) {
  char link[32], target[4096] = {};
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  return ::readlink(link, target, sizeof target - 1) > 0 &&
         std::strstr(target, part_of_path) != nullptr;
}

bool IsFirstTime() {
  const char* const once = std::getenv("MUSTER_FAULT_ONCE");
  if (once == nullptr) return true;
  const int fd = ::open(once, O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd >= 0) ::close(fd);
  return fd >= 0;
}

void AwaitFile() {
  const char* const file = std::getenv("MUSTER_FAULT_ONCE");
  for (int i = 0; i < 3000 && file != nullptr && ::access(file, F_OK) != 0; ++i) ::usleep(10'000);
}

// Distinguishes shared memory from data files, which are mapped as well.
bool IsSharedMemory(int fd) {
  char link[32], target[64] = {};
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  return ::readlink(link, target, sizeof target - 1) > 0 &&
         std::strncmp(target, "/memfd:muster-", 14) == 0;
}

[[gnu::destructor]] void StopAtTheEnd() {
  if (IsWanted("stop") && IsFirstTime()) ::raise(SIGSTOP);
}

}  // namespace

extern "C" void* mmap(void* address, size_t size, int protection, int flags, int fd, off_t offset) {
  if (fd >= 0 && (flags & MAP_SHARED) != 0 && IsWanted("map") && IsSharedMemory(fd)) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  using Function = void* (*)(void*, size_t, int, int, int, off_t);
  static const auto real = reinterpret_cast<Function>(::dlsym(RTLD_NEXT, "mmap"));
  return real(address, size, protection, flags, fd, offset);
}

extern "C" int flock(int fd, int operation) {
  if (IsWanted("flock", "muster") || IsWanted("flock", "muster-server")) return 0;
  using Function = int (*)(int, int);
  static const auto real = reinterpret_cast<Function>(::dlsym(RTLD_NEXT, "flock"));
  return real(fd, operation);
}

extern "C" int fsync(int fd) {
  const bool ends =
      (IsWanted("best", "muster-server") && IsFile(fd, "/best.safetensors")) ||
      (IsWanted("first", "muster-server") && IsFile(fd, "/step-00000000-") && IsFirstTime());
  if (ends) {
    ::usleep(1'500'000);
    ::raise(SIGKILL);
  }
  if (IsWanted("model", "muster-server") && IsFile(fd, "/model.safetensors")) AwaitFile();
  using Function = int (*)(int);
  static const auto real = reinterpret_cast<Function>(::dlsym(RTLD_NEXT, "fsync"));
  return real(fd);
}

extern "C" ssize_t recvmsg(int fd, msghdr* message, int flags) {
  using Function = ssize_t (*)(int, msghdr*, int);
  static const auto real = reinterpret_cast<Function>(::dlsym(RTLD_NEXT, "recvmsg"));
  const ssize_t size = real(fd, message, flags);
  if (size < 0 || !IsWanted("receive")) return size;
  for (cmsghdr* entry = CMSG_FIRSTHDR(message); entry != nullptr;
       entry = CMSG_NXTHDR(message, entry)) {
    if (entry->cmsg_level != SOL_SOCKET || entry->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (entry->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int received = -1;
      std::memcpy(&received, CMSG_DATA(entry) + i * sizeof(int), sizeof received);
      ::close(received);
    }
    message->msg_controllen = 0;
    message->msg_flags |= MSG_CTRUNC;
    break;
  }
  return size;
}
