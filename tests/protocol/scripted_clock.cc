#include "tests/protocol/scripted_clock.h"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>

#include "common/base/error.h"

namespace muster::testing {
namespace {

constexpr int64_t kBegin = 1'000'000'000'000;  // after 1,000 s

thread_local int64_t scripted_ns = 0;  // 0: the real time

}  // namespace

ScriptedClock::ScriptedClock() {
  scripted_ns = kBegin;
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  MUSTER_CHECK(now == std::chrono::nanoseconds(kBegin));  // the library asks the function below
}

ScriptedClock::~ScriptedClock() { scripted_ns = 0; }

void ScriptedClock::Advance(std::chrono::nanoseconds by) { scripted_ns += by.count(); }

}  // namespace muster::testing

// The one of the program goes before that of the C library.
extern "C" int clock_gettime(clockid_t clock, struct timespec* time) noexcept {
  const int64_t scripted = muster::testing::scripted_ns;
  if (clock != CLOCK_MONOTONIC || scripted == 0) {
    return static_cast<int>(::syscall(SYS_clock_gettime, clock, time));
  }
  time->tv_sec = scripted / 1'000'000'000;
  time->tv_nsec = scripted % 1'000'000'000;
  return 0;
}
