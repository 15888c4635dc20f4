#include "common/base/process_identity.h"

#include <unistd.h>

#include <fstream>
#include <iterator>
#include <sstream>

namespace muster {
namespace {

struct Stat {
  char state = 0;  // 0: there is no such process
  uint64_t started = 0;
};

// proc(5). The second field, the name, may hold anything, so the fields are counted from its end.
Stat ReadStat(int64_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return {};
  std::istringstream fields(text.substr(name_end + 1));
  constexpr int kFieldsBetween = 18;  // state is the third, the time of its start the 22nd
  Stat stat;
  std::string skipped;
  fields >> stat.state;
  for (int i = 0; i < kFieldsBetween; ++i) fields >> skipped;
  fields >> stat.started;
  return fields ? stat : Stat{};
}

}  // namespace

std::string HostName() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "";
}

ProcessIdentity ThisProcess() {
  const int64_t pid = ::getpid();
  return {HostName(), pid, ReadStat(pid).started};
}

bool IsAlive(const ProcessIdentity& process) {
  const Stat stat = ReadStat(process.pid);
  return stat.state != 0 && stat.state != 'Z' && stat.state != 'X' &&
         stat.started == process.started;
}

}  // namespace muster
