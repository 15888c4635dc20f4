#include "ps/record/event_pipe.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>

#include "common/events/event_line.h"

namespace muster {

EventPipe::EventPipe(int fd) : fd_(fd) {
  if (fd_ >= 0) ::fcntl(fd_, F_SETFL, ::fcntl(fd_, F_GETFL) | O_NONBLOCK);
}

void EventPipe::Send(const events::Event& event) {
  if (fd_ < 0) return;
  constexpr size_t kMany = 16 << 20;
  const bool may_drop =
      event.has_progress() || event.has_beat() || (event.has_log() && unsent_.size() > kMany);
  if (!may_drop || unsent_.empty()) unsent_ += EventLine(event);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  while (!unsent_.empty()) {
    const ssize_t n = ::write(fd_, unsent_.data(), unsent_.size());
    if (n > 0) {
      unsent_.erase(0, static_cast<size_t>(n));
    } else if (errno == EAGAIN) {
      if (may_drop || (stalled_ && !event.has_summary())) return;
      stalled_ = std::chrono::steady_clock::now() > deadline;
      if (stalled_) return;
      pollfd ready{fd_, POLLOUT, 0};
      (void)::poll(&ready, 1, 100);
    } else if (errno != EINTR) {
      fd_ = -1;  // the launcher is gone; DieWithParent ends this process
      unsent_.clear();
      return;
    }
  }
  stalled_ = false;
}

}  // namespace muster
