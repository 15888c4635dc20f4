// When something takes so long that a person should be told what it waits for, before a deadline
// ends it.
#pragma once

#include <optional>

namespace muster {

class StallWatch {
 public:
  // The first time it is said after this long, or kUsual times what it usually takes, whatever is
  // longer; then each time that the wait has doubled.
  static constexpr double kFirst = 5, kUsual = 5;

  // `waited` seconds so far for the same thing; it usually takes `usual`. True: say it.
  bool Look(double waited, double usual);
  // It has come. How long it took, if anything was said.
  std::optional<double> Done(double waited);

  bool stalls() const { return next_.has_value(); }

 private:
  std::optional<double> next_;  // say it again then
};

}  // namespace muster
