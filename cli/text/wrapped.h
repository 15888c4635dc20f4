// Sentences and labelled rows on a terminal.
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

// "  label          text", of any length: a row of a job's header or summary.
std::string Row(const std::string& label, const std::string& text);
// Makes every line fit 80 columns, except the first one, which is a title and may be a path.
void FitRows(std::vector<std::string>& lines);

}  // namespace muster
