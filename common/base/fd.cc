#include "common/base/fd.h"

#include <sys/eventfd.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <cerrno>

#include "common/base/error.h"
#include "common/base/resource_limits.h"

namespace muster {
namespace {

// A time of zero disarms the timer.
void SetTimer(int fd, const timespec& in) {
  const itimerspec when{.it_interval = {}, .it_value = in};
  (void)::timerfd_settime(fd, 0, &when, nullptr);
}

}  // namespace

EventFd::EventFd() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!fd_.valid()) throw Error(ExitCode::kFailure, "eventfd: {}", ErrorText(errno));
}

void EventFd::Ring() const {
  const uint64_t one = 1;
  (void)!::write(fd_.get(), &one, sizeof one);
}

void EventFd::Clear() const {
  uint64_t count;
  (void)!::read(fd_.get(), &count, sizeof count);
}

TimerFd::TimerFd() : fd_(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)) {
  if (!fd_.valid()) throw Error(ExitCode::kFailure, "timerfd: {}", ErrorText(errno));
}

void TimerFd::RingIn(int64_t nanoseconds) const {
  const int64_t in = std::max<int64_t>(1, nanoseconds);  // 0 would disarm the timer
  SetTimer(fd_.get(), {in / 1'000'000'000, in % 1'000'000'000});
}

void TimerFd::Clear() const { SetTimer(fd_.get(), {}); }

}  // namespace muster
