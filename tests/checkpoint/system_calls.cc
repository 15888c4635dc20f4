#include "tests/checkpoint/system_calls.h"

#include <cerrno>
#include <csignal>
#include <utility>

namespace muster::testing {
namespace {

struct Watch {
  std::string below;  // empty if calls are not watched
  Fault fault = Fault::kNone;
  size_t at = 0;
  int error = 0;
  std::vector<SystemCall> calls;
};

Watch& TheWatch() {
  static Watch watch;
  return watch;
}

}  // namespace

void WatchCalls(const std::string& below, Fault fault, size_t at, int error) {
  TheWatch() = {below, fault, at, error, {}};
}

std::vector<SystemCall> TakeCalls() {
  std::vector<SystemCall> calls = std::move(TheWatch().calls);
  TheWatch() = {};
  return calls;
}

bool WatchesCalls() { return !TheWatch().below.empty(); }

// Records the call.
Fault OnCall(const char* name, const std::string& path, const std::string& to) {
  Watch& watch = TheWatch();
  if (!path.starts_with(watch.below)) return Fault::kNone;
  const bool this_one = watch.calls.size() == watch.at;
  watch.calls.push_back({name, path, to});
  if (!this_one || watch.fault == Fault::kNone) return Fault::kNone;
  if (watch.fault == Fault::kKill) ::raise(SIGKILL);
  if (watch.fault == Fault::kError) errno = watch.error;
  return watch.fault;
}

}  // namespace muster::testing
