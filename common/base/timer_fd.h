// An alarm that one polls for (timerfd_create(2)).
#pragma once

#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>

#include "common/base/error.h"
#include "common/base/resource_limits.h"
#include "common/base/unique_fd.h"

namespace muster {

class TimerFd {
 public:
  // Throws Error(kFailure).
  TimerFd() : fd_(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)) {
    if (!fd_.valid()) throw Error(ExitCode::kFailure, "timerfd: {}", ErrorText(errno));
  }

  // Readable from then on, to the next call.
  int get() const { return fd_.get(); }
  void RingIn(std::chrono::nanoseconds time) const {
    const auto in = std::max<int64_t>(1, time.count());  // 0 would be never
    Set({.it_interval = {}, .it_value = {in / 1'000'000'000, in % 1'000'000'000}});
  }
  void Clear() const { Set({}); }

 private:
  void Set(const itimerspec& when) const { (void)::timerfd_settime(fd_.get(), 0, &when, nullptr); }

  UniqueFd fd_;
};

}  // namespace muster
