// When a write that failed is tried again: ten seconds later, and with every later write to the
// same place.
#pragma once

#include <chrono>
#include <string>

namespace muster {

// Used by one thread.
class Retry {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kInterval{10};

  // The result of a write: why it failed, or "". True: the write before it did not fail, so a
  // person should be told that it is tried again.
  bool Note(const std::string& trouble) {
    const bool first = trouble_.empty() && !trouble.empty();
    trouble_ = trouble;
    next_ = Clock::now() + kInterval;
    return first && !ended_;
  }
  // The writes that follow are the last ones: what they do not write is not tried again.
  void End() { ended_ = true; }
  // Why the last write failed; "" if it did not.
  const std::string& trouble() const { return trouble_; }
  // Whether it is time for another attempt. True once in each interval.
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
