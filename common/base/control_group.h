// What the control groups (cgroup v2) that this process is in allow it: containers, systemd and
// batch systems set such limits, and not only at the root that a container sees.
#pragma once

#include <limits>
#include <string>

namespace muster {

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
