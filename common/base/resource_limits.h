// What this process may use: the limits that a shell sets (ulimit), noticed before a library aborts
// of them and named where they are why something fails, and those of its control groups.
#pragma once

#include <limits>
#include <string>

namespace muster {

// A file that may not grow is an error of write(2), EFBIG, and not SIGXFSZ, which ends a process
// without a word. Call early in main.
void IgnoreFileSizeSignal();

// What the error means: "File too large (ulimit -f allows 4096 bytes a file, shared memory
// included)". Where a limit is the likely reason it is named with its value, otherwise these are
// the system's words.
std::string ErrorText(int error);

// " (ulimit -n allows 1024 open files)"
std::string OpenFilesHint();

// Makes sure that this process may have `count` open files, raising the soft limit if need be.
// `who` needs them: "the server of 4 workers". Throws Error(kFailure).
void RequireOpenFiles(const std::string& who, unsigned count);

// How many a server may come to need.
inline unsigned OpenFilesOfServer(unsigned workers) { return 64 + 8 * workers; }

// Makes sure that this process can start `count` more threads at this time: libzmq and OpenMP end
// the process where they cannot. Throws Error(kFailure).
void RequireThreads(const std::string& who, unsigned count);

// What the control groups (cgroup v2) that this process is in allow it: containers, systemd and
// batch systems set such limits, and not only at the root that a container sees.
struct ControlGroupLimits {
  static constexpr double kNone = std::numeric_limits<double>::infinity();
  double cores = kNone;        // processor time per time
  double memory = kNone;       // bytes
  double memory_left = kNone;  // of them, now; the page cache of files counts as left
};

// The least of every group from this process's own up to the root. What cannot be read is no limit.
// `membership` is as /proc/self/cgroup, `mount` where the groups are.
ControlGroupLimits ReadControlGroupLimits(const std::string& membership = "/proc/self/cgroup",
                                          const std::string& mount = "/sys/fs/cgroup");

}  // namespace muster
