// Decides when to retry a failed write: every ten seconds, and with every later write to the same
// file.
#pragma once

#include <chrono>
#include <string>

namespace muster {

// Use from one thread only.
class Retry {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kInterval{10};

  // Records the result of a write: why it failed, or "". Returns true for the first failure after a
  // success, so that the user is warned once about the retries.
  bool Note(const std::string& trouble) {
    const bool first = trouble_.empty() && !trouble.empty();
    trouble_ = trouble;
    next_ = Clock::now() + kInterval;
    return first && !ended_;
  }
  // Call before the last writes. Their failures are not retried.
  void End() { ended_ = true; }
  // Why the last write failed; "" if it succeeded.
  const std::string& trouble() const { return trouble_; }
  // Whether to retry now. True once per interval.
  bool IsDue() {
    if (trouble_.empty() || Clock::now() < next_) return false;
    next_ = Clock::now() + kInterval;
    return true;
  }

 private:
  std::string trouble_;
  bool ended_ = false;
  Clock::time_point next_;
};

}  // namespace muster
