// Resource limits of the shell (ulimit) and of control groups. Shell limits are checked before a
// library aborts because of them, and error messages mention them.
#pragma once

#include <limits>
#include <string>

namespace muster {

// Makes write(2) fail with EFBIG when the file size limit is exceeded. By default, SIGXFSZ kills
// the process silently. Call early in main.
void IgnoreFileSizeSignal();

// The text of an errno value. If a limit is the likely cause, the text names it: "File too large
// (ulimit -f allows 4096 bytes a file, shared memory included)".
std::string ErrorText(int error);

// Returns a hint such as " (ulimit -n allows 1024 open files)".
std::string OpenFilesHint();

// Ensures that this process may have `count` open files, raising the soft limit if necessary. `who`
// names what needs them, for the error: "the server of 4 workers". Throws Error(kFailure).
void RequireOpenFiles(const std::string& who, unsigned count);

// The maximum number of files that a server may open.
inline unsigned OpenFilesOfServer(unsigned workers) { return 64 + 8 * workers; }

// Ensures that this process can start `count` more threads now, because libzmq and OpenMP abort if
// they cannot start theirs. Throws Error(kFailure).
void RequireThreads(const std::string& who, unsigned count);

// The limits of this process's control groups (cgroup v1 and v2). Containers, systemd and batch
// systems set them, not only at the root that a container sees.
struct ControlGroupLimits {
  static constexpr double kNone = std::numeric_limits<double>::infinity();
  double cores = kNone;        // CPU time per wall time
  double memory = kNone;       // bytes
  double memory_left = kNone;  // currently available bytes; includes the page cache
  double processes = kNone;    // and threads, of the group that has the fewest left
  double processes_left = kNone;
};

// Returns the minimum over all groups from this process's own group up to the root. Unreadable
// limits are ignored. `membership` has the format of /proc/self/cgroup; `mount` is the cgroup mount
// point.
ControlGroupLimits ReadControlGroupLimits(const std::string& membership = "/proc/self/cgroup",
                                          const std::string& mount = "/sys/fs/cgroup");

}  // namespace muster
