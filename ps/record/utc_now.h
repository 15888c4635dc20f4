// The current time for files.
#pragma once

#include <string>

namespace muster {

// UTC, ISO 8601, with milliseconds: 2025-01-31T12:00:00.000Z.
std::string UtcNow();

}  // namespace muster
