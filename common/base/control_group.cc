#include "common/base/control_group.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>

namespace muster {
namespace {

double NumberIn(const std::string& path) {
  std::ifstream file(path);
  double number = 0;
  return file >> number ? number : ControlGroupLimits::kNone;  // "max" is no number
}

// "QUOTA PERIOD", in microseconds.
double CoresIn(const std::string& path) {
  std::ifstream file(path);
  double quota = 0, period = 0;
  if (!(file >> quota >> period) || quota <= 0 || period <= 0) return ControlGroupLimits::kNone;
  return quota / period;
}

// Of the page cache: given up where memory is needed.
double FileBytesIn(const std::string& path) {
  std::ifstream file(path);
  std::string key;
  for (double bytes = 0; file >> key >> bytes;) {
    if (key == "inactive_file") return bytes;
  }
  return 0;
}

// "/user.slice/a.scope" of the line "0::/user.slice/a.scope"; "" if there is none.
std::string GroupOf(const std::string& membership) {
  std::ifstream file(membership);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("0::/")) return line.substr(3);
  }
  return "";
}

void Lower(ControlGroupLimits& limits, const std::string& group) {
  limits.cores = std::min(limits.cores, CoresIn(group + "/cpu.max"));
  const double most = NumberIn(group + "/memory.max"), used = NumberIn(group + "/memory.current");
  if (!std::isfinite(most)) return;
  limits.memory = std::min(limits.memory, most);
  if (!std::isfinite(used)) return;
  const double left = std::max(0.0, most - used + FileBytesIn(group + "/memory.stat"));
  limits.memory_left = std::min(limits.memory_left, left);
}

}  // namespace

ControlGroupLimits ReadControlGroupLimits(const std::string& membership, const std::string& mount) {
  ControlGroupLimits limits;
  std::string group = GroupOf(membership);
  while (group.size() > 1) {
    Lower(limits, mount + group);
    group.resize(group.rfind('/'));
  }
  Lower(limits, mount);  // a container's own, which it sees as the root
  return limits;
}

}  // namespace muster
