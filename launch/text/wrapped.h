// Sentences on a terminal.
#pragma once

#include <string>
#include <vector>

namespace muster {

// Cut between words; a word that is longer than a line is cut itself. At least one line.
std::vector<std::string> Wrapped(const std::string& text, int width);

}  // namespace muster
