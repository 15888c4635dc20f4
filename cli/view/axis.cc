#include "cli/view/axis.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

namespace muster {

Axis RoundAxis(double low, double high, int most) {
  if (high <= low) {  // one value: give it some room
    const double room = std::abs(low) < 1e-300 ? 1 : std::abs(low) / 10;
    low -= room;
    high += room;
  }
  const double rough = (high - low) / std::max(1, most);
  const double power = std::pow(10, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double factor : {1, 2, 5}) {
    if (factor * power >= rough * 0.999) {
      step = factor * power;
      break;
    }
  }
  const double first = std::floor(low / step + 1e-9), last = std::ceil(high / step - 1e-9);
  // So far apart, or so large and near to each other, that a step between them is no number.
  const bool steps = std::isfinite(step) && last - first <= 4.0 * std::max(1, most);
  if (!steps || !(first + 1 > first)) {
    return {.low = low, .high = high, .ticks = {low, high}};
  }
  Axis axis{.low = first * step, .high = last * step};
  for (double i = first; i <= last; ++i) axis.ticks.push_back(i * step);
  return axis;
}

std::string TickText(const Axis& axis, double tick) {
  const double step = axis.ticks.size() > 1 ? axis.ticks[1] - axis.ticks[0] : axis.high - axis.low;
  const double largest = std::max(std::abs(axis.low), std::abs(axis.high));
  double unit = 1;
  const char* suffix = "";
  if (largest >= 1e7) {
    unit = 1e6;
    suffix = "M";
  } else if (largest >= 1e4) {
    unit = 1e3;
    suffix = "k";
  }
  if (tick == 0) return "0";
  if (largest < 1e-3) return fmt::format("{:.2g}", tick);
  const int decimals = std::max(0, static_cast<int>(-std::floor(std::log10(step / unit) + 1e-9)));
  return fmt::format("{:.{}f}{}", tick / unit, decimals, suffix);
}

}  // namespace muster
