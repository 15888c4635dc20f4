#include "common/base/resident_memory.h"

#include <unistd.h>

#include <fstream>
#include <string>

namespace muster {

std::optional<int64_t> ResidentBytes(int64_t pid) {
  int64_t all = 0, resident = 0;
  std::ifstream file("/proc/" + (pid == 0 ? "self" : std::to_string(pid)) + "/statm");
  if (!(file >> all >> resident)) return std::nullopt;
  return resident * ::sysconf(_SC_PAGESIZE);
}

}  // namespace muster
