#include "tests/protocol/scripted_clock.h"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

#include "common/base/error.h"

namespace muster::testing {
namespace {

constexpr int64_t kBegin = 1'000'000'000'000;  // after 1,000 s

constexpr int64_t kSecond = 1'000'000'000;

thread_local int64_t scripted_ns = 0;  // 0: the real time
std::atomic<int64_t> ahead_ns = 0;     // offset of the real time

}  // namespace

ScriptedClock::ScriptedClock() {
  scripted_ns = kBegin;
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  MUSTER_CHECK(now == std::chrono::nanoseconds(kBegin));  // the library calls the function below
}

ScriptedClock::~ScriptedClock() { scripted_ns = 0; }

void ScriptedClock::Advance(std::chrono::nanoseconds by) { scripted_ns += by.count(); }

void AdvanceRealTime(std::chrono::nanoseconds by) { ahead_ns += by.count(); }

}  // namespace muster::testing

// Overrides the C library's function.
extern "C" int clock_gettime(clockid_t clock, struct timespec* time) noexcept {
  using muster::testing::kSecond;
  int64_t ns = muster::testing::scripted_ns;
  if (clock != CLOCK_MONOTONIC || ns == 0) {
    const auto failed = static_cast<int>(::syscall(SYS_clock_gettime, clock, time));
    const int64_t ahead = muster::testing::ahead_ns;
    if (failed != 0 || clock != CLOCK_MONOTONIC || ahead == 0) return failed;
    ns = time->tv_sec * kSecond + time->tv_nsec + ahead;
  }
  time->tv_sec = ns / kSecond;
  time->tv_nsec = ns % kSecond;
  return 0;
}
