#include "cli/text/measure.h"

#include <fmt/core.h>

#include "cli/text/units.h"

namespace muster {

std::string Measure::Name(char between) const {
  return fmt::format("{}{}{}", on_validation ? "validation" : "test", between,
                     is_loss ? "loss" : "accuracy");
}

std::string Measure::Text(double value) const {
  if (!is_loss) return FormatPercent(value, 2);
  return fmt::format("{:.4f}", value);
}

std::string Measure::Named(double value) const { return Name() + " " + Text(value); }

}  // namespace muster
