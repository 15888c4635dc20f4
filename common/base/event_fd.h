// A bell that one thread rings and another one polls for (eventfd(2)).
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "common/base/error.h"
#include "common/base/resource_limits.h"
#include "common/base/unique_fd.h"

namespace muster {

class EventFd {
 public:
  // Throws Error(kFailure).
  EventFd() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (!fd_.valid()) throw Error(ExitCode::kFailure, "eventfd: {}", ErrorText(errno));
  }

  // Readable from Ring to Clear.
  int get() const { return fd_.get(); }
  void Ring() const {
    const uint64_t one = 1;
    (void)!::write(fd_.get(), &one, sizeof one);
  }
  void Clear() const {
    uint64_t count;
    (void)!::read(fd_.get(), &count, sizeof count);
  }

 private:
  UniqueFd fd_;
};

}  // namespace muster
