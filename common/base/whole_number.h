// A number of somebody else's text as an integer.
#pragma once

#include <cstdint>
#include <optional>

namespace muster {

// Without its fraction; nothing for what no int64_t holds, where a cast would do anything.
inline std::optional<int64_t> WholeNumberOf(double value) {
  constexpr double kEnd = 9223372036854775808.0;  // 2^63
  if (!(value >= -kEnd && value < kEnd)) return std::nullopt;
  return static_cast<int64_t>(value);
}

}  // namespace muster
