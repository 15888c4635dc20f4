// JSON values of what may be unknown.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

namespace muster {

// The value, or null without one.
template <typename T>
nlohmann::ordered_json OrNull(const std::optional<T>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json();
}

}  // namespace muster
