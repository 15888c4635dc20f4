// What a program said, whatever the width of its lines.
#pragma once

#include <cctype>
#include <string>

namespace muster::testing {

// A single space for each run of spaces and newlines.
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
