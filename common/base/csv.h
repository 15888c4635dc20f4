// Tables as comma-separated values.
#pragma once

#include <string>

namespace muster {

// A cell, quoted where it must be (RFC 4180).
std::string CsvField(const std::string& text);

}  // namespace muster
