// Comma-separated values.
#pragma once

#include <string>

namespace muster {

// Quotes a cell if necessary (RFC 4180).
std::string CsvField(const std::string& text);

}  // namespace muster
