// Several descriptors to wait for as one (epoll(7)).
#pragma once

#include <sys/epoll.h>

#include <cerrno>
#include <cstdint>

#include "common/base/error.h"
#include "common/base/resource_limits.h"
#include "common/base/unique_fd.h"

namespace muster {

// All throw Error(kFailure).
class Epoll {
 public:
  Epoll() : fd_(::epoll_create1(EPOLL_CLOEXEC)) {
    if (!fd_.valid()) throw Error(ExitCode::kFailure, "epoll_create: {}", ErrorText(errno));
  }

  int get() const { return fd_.get(); }
  // `number` comes back with the event.
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

}  // namespace muster
