// File descriptors: RAII ownership, an event and a timer.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <utility>

namespace muster {

// Owns one file descriptor and closes it.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) Reset(std::exchange(other.fd_, -1));
    return *this;
  }
  ~UniqueFd() { Reset(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  // Gives up ownership. The caller must close the descriptor.
  int Release() { return std::exchange(fd_, -1); }
  void Reset(int fd = -1) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = fd;
  }

 private:
  int fd_ = -1;
};

// An event that one thread signals and another polls for (eventfd(2)).
class EventFd {
 public:
  EventFd();  // throws Error(kFailure)

  // Readable from Ring until Clear.
  int get() const { return fd_.get(); }
  void Ring() const;
  void Clear() const;

 private:
  UniqueFd fd_;
};

// A timer to poll for (timerfd_create(2)).
class TimerFd {
 public:
  TimerFd();  // throws Error(kFailure)

  // Readable from the time it expires until the next RingIn or Clear.
  int get() const { return fd_.get(); }
  void RingIn(int64_t nanoseconds) const;
  void Clear() const;

 private:
  UniqueFd fd_;
};

}  // namespace muster
