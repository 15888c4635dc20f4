// Points in time for files.
#pragma once

#include <cstdint>
#include <string>

namespace muster {

int64_t UnixMilliseconds();
// UTC, ISO 8601, with milliseconds: 2025-01-31T12:00:00.000Z.
std::string UtcText(int64_t unix_ms);

}  // namespace muster
