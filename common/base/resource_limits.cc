#include "common/base/resource_limits.h"

#include <fmt/core.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <latch>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

#include "common/base/error.h"

namespace muster {
namespace {

rlim_t SoftLimit(__rlimit_resource resource) {
  rlimit limit{};
  return ::getrlimit(resource, &limit) == 0 ? limit.rlim_cur : RLIM_INFINITY;
}

std::string Hint(__rlimit_resource resource, const char* option, const char* what) {
  const rlim_t limit = SoftLimit(resource);
  return limit == RLIM_INFINITY ? ""
                                : fmt::format(" (ulimit -{} allows {} {})", option, limit, what);
}

std::string MemoryHint() {
  return Hint(RLIMIT_AS, "v", "bytes of address space") + Hint(RLIMIT_DATA, "d", "bytes of data");
}

// A thread needs memory for its stack, and the error is the same. Hardly anybody sets the limits of
// memory, but every system has one of threads.
std::string ThreadsHint() {
  const std::string memory = MemoryHint();
  return memory.empty() ? Hint(RLIMIT_NPROC, "u", "processes and threads of this user") : memory;
}

}  // namespace

void IgnoreFileSizeSignal() { std::signal(SIGXFSZ, SIG_IGN); }

std::string OpenFilesHint() { return Hint(RLIMIT_NOFILE, "n", "open files"); }

std::string ErrorText(int error) {
  std::string words = std::strerror(error);
  switch (error) {
    case EFBIG:
      return words + Hint(RLIMIT_FSIZE, "f", "bytes a file, shared memory included");
    case EMFILE:
      return words + OpenFilesHint();
    case EAGAIN:
      return words + ThreadsHint();
    case ENOMEM:
      return words + MemoryHint();
    default:
      return words;
  }
}

void RequireOpenFiles(const std::string& who, unsigned count) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= count) return;
  limit.rlim_cur = std::min<rlim_t>(count, limit.rlim_max);
  if (limit.rlim_cur >= count && ::setrlimit(RLIMIT_NOFILE, &limit) == 0) return;
  throw Error(ExitCode::kFailure,
              "{} needs up to {} open files, and the limit is {}: raise it (ulimit -n {})", who,
              count, SoftLimit(RLIMIT_NOFILE), count);
}

void RequireThreads(const std::string& who, unsigned count) {
  std::latch all(1);
  std::vector<std::jthread> threads;
  int failure = 0;
  try {
    threads.reserve(count);
    while (threads.size() < count) threads.emplace_back([&all] { all.wait(); });
  } catch (const std::system_error& error) {
    failure = error.code().value();
  } catch (const std::bad_alloc&) {
    failure = ENOMEM;
  }
  const size_t started = threads.size();
  all.count_down();  // before the threads are joined, whatever happened
  threads.clear();
  if (failure == 0) return;
  throw Error(ExitCode::kFailure, "{} needs {} more threads, and the system lets it start {}: {}",
              who, count, started, ErrorText(failure));
}

}  // namespace muster
