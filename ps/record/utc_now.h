// The time of day as files say it.
#pragma once

#include <string>

namespace muster {

// UTC, ISO 8601, with milliseconds: 2025-01-31T12:00:00.000Z.
std::string UtcNow();

}  // namespace muster
