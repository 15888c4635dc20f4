// Sentences on a terminal.
#pragma once

#include <string>
#include <vector>

namespace muster {

// Cut between words; a word that is longer than a line is cut itself. At least one line.
std::vector<std::string> Wrapped(const std::string& text, int width);

// A line of help or of a table. What does not fit goes below the beginning of the line's last cell:
// what is behind the first gap of two spaces or more, such as what an option does. A word that is
// longer than the line stays whole, since it is a path or a command.
std::vector<std::string> WrappedRow(const std::string& line, int width);
// The same of several lines at once, each with its newline but perhaps the last one.
std::string WrappedRows(const std::string& text, int width);

}  // namespace muster
