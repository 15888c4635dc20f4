#include "cli/text/units.h"

#include <fmt/core.h>

#include <array>
#include <cmath>

namespace muster {
namespace {

// Three significant digits with the largest prefix that keeps the number at 1 or above.
std::string WithPrefix(double value, const char* unit) {
  static constexpr std::array kPrefixes = {"", "k", "M", "G", "T", "P"};
  if (!std::isfinite(value)) return "-";
  size_t prefix = 0;
  while (std::abs(value) >= 999.5 && prefix + 1 < kPrefixes.size()) {
    value /= 1000;
    ++prefix;
  }
  int decimals = prefix == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f} {}{}", value, decimals, kPrefixes[prefix], unit);
}

}  // namespace

std::string FormatCount(double value) {
  if (!std::isfinite(value) || std::abs(value) > 9e18) return "-";
  return FormatCount(static_cast<int64_t>(std::llround(value)));
}

std::string FormatRate(double value) {
  return value < 9.95 ? fmt::format("{:.1f}", value) : FormatCount(value);
}

std::string FormatBytes(double bytes) { return WithPrefix(bytes, "B"); }

std::string FormatFlops(double flops) { return WithPrefix(flops, "FLOP"); }

std::string FormatDuration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0 || seconds > 1e12) return "-";
  if (seconds < 9.95) return fmt::format("{:.1f} s", seconds);
  int64_t s = std::llround(seconds);
  if (s < 100) return fmt::format("{} s", s);
  if (s < 3600) return fmt::format("{} min {:02} s", s / 60, s % 60);
  if (s < 86400) return fmt::format("{} h {:02} min", s / 3600, s / 60 % 60);
  return fmt::format("{} d {:02} h", s / 86400, s / 3600 % 24);
}

std::string FormatMilliseconds(double ms) {
  if (!std::isfinite(ms)) return "-";
  if (ms >= 99.95) return FormatCount(ms) + " ms";
  return fmt::format("{:.{}f} ms", ms, ms < 9.995 ? 2 : 1);
}

std::string FormatPercent(double share, int decimals) {
  if (!std::isfinite(share)) return "-";
  return fmt::format("{:.{}f} %", 100 * share, decimals);
}

std::string Plural(int64_t count, const std::string& noun) {
  return FormatCount(count) + " " + noun + (count == 1 ? "" : "s");
}

}  // namespace muster
