#include "common/base/resource_limits.h"

#include <fmt/core.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <latch>
#include <new>
#include <sstream>
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

double NumberIn(const std::string& path) {
  std::ifstream file(path);
  double number = 0;
  return file >> number ? number : ControlGroupLimits::kNone;  // "max" is not a number
}

// Returns the cores that a group allows. cpu.max is "QUOTA PERIOD", in microseconds; cgroup v1 has
// a file for each.
double CoresIn(const std::string& group) {
  std::ifstream both(group + "/cpu.max"), first(group + "/cpu.cfs_quota_us"),
      second(group + "/cpu.cfs_period_us");
  double quota = 0, period = 0;
  if (!(both >> quota >> period) && !(first >> quota && second >> period)) quota = 0;
  return quota > 0 && period > 0 ? quota / period : ControlGroupLimits::kNone;
}

// The number in the file of cgroup v2 or that of v1.
double NumberIn(const std::string& path, const std::string& old_path) {
  constexpr double kUnlimited = 1e18;  // cgroup v1 writes nearly 2^63
  const double number = std::min(NumberIn(path), NumberIn(old_path));
  return number < kUnlimited ? number : ControlGroupLimits::kNone;
}

// Size of the page cache, which the system frees when memory is needed.
double FileBytesIn(const std::string& path) {
  std::ifstream file(path);
  std::string key;
  double most = 0;  // in cgroup v1 the total includes the groups below
  for (double bytes = 0; file >> key >> bytes;) {
    if (key == "inactive_file" || key == "total_inactive_file") most = std::max(most, bytes);
  }
  return most;
}

struct Hierarchy {
  std::string root;   // below the mount point
  std::string group;  // "/user.slice/a.scope", below the root
};

// "0::/user.slice/a.scope" is of cgroup v2. In v1, "4:cpu,cpuacct:/a" stands for the folders
// cpu/a and cpuacct/a.
std::vector<Hierarchy> HierarchiesOf(const std::string& membership) {
  std::vector<Hierarchy> found{{"", ""}};  // at least a container's own group, which it sees as "/"
  std::ifstream file(membership);
  for (std::string line; std::getline(file, line);) {
    const size_t names = line.find(':'), path = line.find(":/", names + 1);
    if (names == std::string::npos || path == std::string::npos) continue;
    std::istringstream controllers(line.substr(names + 1, path - names - 1));
    if (path == names + 1) found.push_back({"", line.substr(path + 1)});
    for (std::string name; std::getline(controllers, name, ',');) {
      found.push_back({"/" + name, line.substr(path + 1)});
    }
  }
  return found;
}

// Counts like the kernel does for ulimit -u: by the real user.
rlim_t ThreadsOfUser() {
  rlim_t count = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    std::ifstream file(entry.path() / "status");  // only processes have one
    uid_t user = 0;
    rlim_t threads = 0;
    for (std::string word; file >> word;) {
      if (word == "Uid:") file >> user;
      if (word == "Threads:") file >> threads;
    }
    if (user == ::getuid()) count += threads;
  }
  return count;
}

// Names the limit on processes and threads that is reached. All systems have several, so one that
// is not reached is no cause. A thread also needs memory for its stack, and a lack of it gives the
// same error. Memory limits are rarely set, so where there is one, it is the likelier cause.
std::string ThreadsHint() {
  if (std::string memory = MemoryHint(); !memory.empty()) return memory;
  const ControlGroupLimits group = ReadControlGroupLimits();
  if (group.processes_left <= 0) {
    return fmt::format(" (the control group allows {:.0f} processes and threads: pids.max)",
                       group.processes);
  }
  if (::geteuid() == 0 || SoftLimit(RLIMIT_NPROC) > ThreadsOfUser()) return "";
  return Hint(RLIMIT_NPROC, "u", "processes and threads of this user");
}

void Lower(ControlGroupLimits& limits, const std::string& group) {
  const double processes = NumberIn(group + "/pids.max");
  const double left = processes - NumberIn(group + "/pids.current");
  if (std::isfinite(left) && left < limits.processes_left) {
    limits.processes = processes;
    limits.processes_left = left;
  }
  limits.cores = std::min(limits.cores, CoresIn(group));
  const double most = NumberIn(group + "/memory.max", group + "/memory.limit_in_bytes"),
               used = NumberIn(group + "/memory.current", group + "/memory.usage_in_bytes");
  if (!std::isfinite(most)) return;
  limits.memory = std::min(limits.memory, most);
  if (!std::isfinite(used)) return;
  const double free = std::max(0.0, most - used + FileBytesIn(group + "/memory.stat"));
  limits.memory_left = std::min(limits.memory_left, free);
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
              "{} needs up to {} open files, but the limit is {}: raise it with ulimit -n {}", who,
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
  const std::string why = failure == 0 ? "" : ErrorText(failure);  // while the threads count
  all.count_down();  // before the threads are joined, even after a failure
  threads.clear();
  if (failure == 0) return;
  throw Error(ExitCode::kFailure, "{} needs {} more threads, but the system started only {}: {}",
              who, count, started, why);
}

ControlGroupLimits ReadControlGroupLimits(const std::string& membership, const std::string& mount) {
  ControlGroupLimits limits;
  for (auto& [root, group] : HierarchiesOf(membership)) {
    const std::string top = mount + root;
    for (; group.size() > 1; group.resize(group.rfind('/'))) Lower(limits, top + group);
    Lower(limits, top);
  }
  return limits;
}

}  // namespace muster
