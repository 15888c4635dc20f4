#include "cli/process/process_state.h"

#include <fmt/core.h>

#include <fstream>
#include <string>

namespace muster {

bool IsStopped(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string line;
  std::getline(file, line);
  // "4242 (name) T …"; the name may hold parentheses itself.
  const size_t end = line.rfind(')');
  const char state = end == std::string::npos || end + 2 >= line.size() ? '?' : line[end + 2];
  return state == 'T';  // 't', stopped by a tracer, passes at once
}

}  // namespace muster
