#include "common/base/process.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>

#include "common/base/error.h"

namespace muster {
namespace {

struct Stat {
  char state = 0;  // 0: there is no such process
  uint64_t started = 0;
};

// See proc(5). The second field, the name, may contain any bytes, so fields are counted from its
// end.
Stat ReadStat(int64_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return {};
  std::istringstream fields(text.substr(name_end + 1));
  constexpr int kFieldsBetween = 18;  // state is field 3, the start time field 22
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

std::optional<int64_t> ResidentBytes(int64_t pid) {
  int64_t all = 0, resident = 0;
  std::ifstream file("/proc/" + (pid == 0 ? "self" : std::to_string(pid)) + "/statm");
  if (!(file >> all >> resident)) return std::nullopt;
  return resident * ::sysconf(_SC_PAGESIZE);
}

std::vector<std::string> EnvironmentWith(const std::vector<std::string>& replaced) {
  std::vector<std::string> all = replaced;
  for (char** variable = ::environ; *variable != nullptr; ++variable) {
    const std::string text = *variable;
    const std::string name = text.substr(0, text.find('=')) + "=";
    const bool known = std::ranges::any_of(
        replaced, [&](const std::string& other) { return other.starts_with(name); });
    if (!known) all.push_back(text);
  }
  return all;
}

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

void DieWithParent(pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The parent may have died before the call above.
  if (::getppid() != parent) std::_Exit(static_cast<int>(ExitCode::kPeerFailed));
}

void KeepOutOfCoreDumps() { (void)::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0); }

SuspensionDetector::Clock::duration SuspensionDetector::Look(Clock::time_point now) {
  const Clock::duration since = now - last_;
  last_ = now;
  return since > usual_ ? since - usual_ / 4 : Clock::duration::zero();
}

}  // namespace muster
