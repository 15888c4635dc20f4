#include "cli/text/wrapped.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "common/base/text.h"

namespace muster {
namespace {

// The last space up to `end` where the text may be broken, except in "50 %".
size_t BreakBefore(const std::string& text, size_t end) {
  size_t space = text.rfind(' ', end);
  while (space != std::string::npos && space > 0 && text.compare(space, 2, " %") == 0) {
    space = text.rfind(' ', space - 1);
  }
  return space;
}

}  // namespace

std::vector<std::string> Wrapped(const std::string& text, int width) {
  const auto most = static_cast<size_t>(std::max(1, width));
  std::vector<std::string> lines;
  size_t at = 0;
  do {
    size_t end = std::min(text.size(), at + most);
    if (end < text.size()) {
      const size_t space = BreakBefore(text, end);
      if (space != std::string::npos && space > at) end = space;
    }
    lines.push_back(text.substr(at, end - at));
    at = end < text.size() && text[end] == ' ' ? end + 1 : end;
  } while (at < text.size());
  return lines;
}

namespace {

// Where the last cell of a row begins: after the first gap of two spaces, or at the first word.
size_t LastCell(const std::string& line) {
  const size_t word = std::min(line.find_first_not_of(' '), line.size());
  const size_t gap = line.find("  ", word);
  const size_t cell = line.find_first_not_of(' ', gap);
  return gap == std::string::npos || cell == std::string::npos ? word : cell;
}

}  // namespace

std::vector<std::string> WrappedRow(const std::string& line, int width) {
  const auto most = static_cast<size_t>(std::max(1, width));
  const std::string indent(LastCell(line), ' ');
  std::vector<std::string> lines;
  std::string rest = line;
  while (rest.size() > most) {
    const size_t first = rest.find_first_not_of(' ', indent.size());  // no word before it
    size_t space = BreakBefore(rest, most);
    if (space == std::string::npos || space < first) space = rest.find(' ', first);
    if (space == std::string::npos) break;
    lines.push_back(rest.substr(0, space));
    rest.replace(0, space + 1, indent);
  }
  lines.push_back(rest);
  return lines;
}

std::string WrappedRows(const std::string& text, int width) {
  std::string all;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::vector<std::string> lines = WrappedRow(text.substr(at, end - at), width);
    for (const std::string& line : lines) all += (&line == lines.data() ? "" : "\n") + line;
    if (end < text.size()) all += '\n';
    at = end + 1;
  }
  return all;
}

std::string Row(const std::string& label, const std::string& text) {
  return fmt::format("  {:<14} {}", label, Shown(text));
}

void FitRows(std::vector<std::string>& lines) {
  constexpr int kWidth = 80;
  std::vector<std::string> fitted;
  for (const std::string& line : lines) {
    const int width = fitted.empty() ? std::max<int>(kWidth, std::ssize(line)) : kWidth;
    for (std::string& part : WrappedRow(line, width)) fitted.push_back(std::move(part));
  }
  lines = std::move(fitted);
}

}  // namespace muster
