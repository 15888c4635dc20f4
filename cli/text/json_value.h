// JSON values for data that may be unknown.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

namespace muster {

// Returns the value, or null if there is none.
template <typename T>
nlohmann::ordered_json OrNull(const std::optional<T>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json();
}

}  // namespace muster
