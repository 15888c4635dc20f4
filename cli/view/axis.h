// The numbers beside a chart.
#pragma once

#include <string>
#include <vector>

namespace muster {

// From values to a length, and the values that are written beside it.
struct Axis {
  double low = 0, high = 1;  // low < high
  std::vector<double> ticks;

  // 0 at low, 1 at high.
  double At(double value) const { return (value - low) / (high - low); }
};

// Ends at ticks, which are 1, 2 or 5 times a power of ten apart, about `most` of them. `low` and
// `high` are finite.
Axis RoundAxis(double low, double high, int most);

// As many digits as tell it from the next tick; thousands as k, millions as M.
std::string TickText(const Axis& axis, double tick);

}  // namespace muster
