// Wraps sentences and labelled rows for a terminal.
#pragma once

#include <string>
#include <vector>

namespace muster {

// Breaks the text between words; splits words that are longer than a line. Returns at least one
// line.
std::vector<std::string> Wrapped(const std::string& text, int width);

// Wraps a line of help or of a table. Continuation lines are indented to the line's last cell, the
// text after the first gap of two or more spaces. Words longer than a line stay whole, because they
// are paths or commands.
std::vector<std::string> WrappedRow(const std::string& line, int width);
// Wraps several lines, each ending in a newline; the last one may lack it.
std::string WrappedRows(const std::string& text, int width);

// "  label          text", a row of a job's header or summary, not wrapped.
std::string Row(const std::string& label, const std::string& text);
// Wraps every line to 80 columns, except the first, which is a title and may be a path.
void FitRows(std::vector<std::string>& lines);

}  // namespace muster
