// Decides when to warn that a wait takes unusually long, before a deadline ends it.
#pragma once

#include <optional>

namespace muster {

class StallWatch {
 public:
  // Warns after kFirst seconds or kUsual times the usual duration, whichever is longer, and then
  // each time the wait has doubled.
  static constexpr double kFirst = 5, kUsual = 5;

  // `waited`: duration of this wait so far; `usual`: its usual duration, both in seconds. Returns
  // whether to warn.
  bool Look(double waited, double usual);
  // Called when the wait is over. Returns its duration if there was a warning.
  std::optional<double> Done(double waited);

 private:
  std::optional<double> next_;  // when to warn next
};

}  // namespace muster
