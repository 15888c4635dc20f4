// Waits for file descriptors.
#pragma once

#include <sys/epoll.h>

#include <cerrno>
#include <chrono>
#include <cstdint>

#include "common/base/error.h"
#include "common/base/fd.h"
#include "common/base/resource_limits.h"

namespace muster {

// Waits for several descriptors (epoll(7)). All functions throw Error(kFailure).
class Epoll {
 public:
  Epoll() : fd_(::epoll_create1(EPOLL_CLOEXEC)) {
    if (!fd_.valid()) throw Error(ExitCode::kFailure, "epoll_create: {}", ErrorText(errno));
  }

  int get() const { return fd_.get(); }
  // Events of this descriptor carry `number`.
  void Add(int fd, uint64_t number = 0, uint32_t events = EPOLLIN) {
    Control(EPOLL_CTL_ADD, fd, number, events);
  }
  void Change(int fd, uint64_t number, uint32_t events) {
    Control(EPOLL_CTL_MOD, fd, number, events);
  }

 private:
  void Control(int operation, int fd, uint64_t number, uint32_t events) {
    epoll_event event{};
    event.events = events;
    event.data.u64 = number;
    if (::epoll_ctl(fd_.get(), operation, fd, &event) != 0) {
      throw Error(ExitCode::kFailure, "epoll_ctl: {}", ErrorText(errno));
    }
  }

  UniqueFd fd_;
};

// Decides when to poll a socket although most messages arrive through memory: after a sleep, and
// otherwise once per millisecond.
class PollInterval {
 public:
  void DueNow() { due_ = true; }
  // Returns whether to poll now. After returning true, returns false for a millisecond unless
  // DueNow is called.
  bool Due() {
    const auto now = std::chrono::steady_clock::now();
    if (!due_ && now - last_ < std::chrono::milliseconds(1)) return false;
    due_ = false;
    last_ = now;
    return true;
  }

 private:
  std::chrono::steady_clock::time_point last_;
  bool due_ = true;
};

}  // namespace muster
