// When a socket is worth a system call to somebody who is otherwise told of everything by memory:
// after a sleep, and else once a millisecond.
#pragma once

#include <chrono>

namespace muster {

class PollInterval {
 public:
  void DueNow() { due_ = true; }
  // Whether to look now; then not for a millisecond, unless DueNow.
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
