// Compares output regardless of line breaks.
#pragma once

#include <cctype>
#include <string>

namespace muster::testing {

// Replaces each run of spaces and newlines by a single space.
inline std::string Unwrapped(const std::string& text) {
  std::string words;
  for (const char c : text) {
    if (std::isspace(static_cast<unsigned char>(c)) == 0) {
      words += c;
    } else if (!words.empty() && words.back() != ' ') {
      words += ' ';
    }
  }
  return words;
}

}  // namespace muster::testing
