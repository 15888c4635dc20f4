#include "cli/text/text_table.h"

#include <fmt/core.h>

#include <algorithm>

namespace muster {

std::vector<std::string> TextTable::Lines() const {
  std::vector<size_t> widths;
  for (const Column& column : columns_) widths.push_back(column.title.size());
  for (const auto& row : rows_) {
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  }
  auto format = [&](const std::vector<std::string>& cells) {
    std::string line;
    for (size_t c = 0; c < cells.size(); ++c) {
      line += columns_[c].number ? fmt::format("  {:>{}}", cells[c], widths[c])
                                 : fmt::format("  {:<{}}", cells[c], widths[c]);
    }
    return line.substr(0, line.find_last_not_of(' ') + 1);
  };
  std::vector<std::string> titles, dashes;
  for (size_t c = 0; c < columns_.size(); ++c) {
    titles.push_back(columns_[c].title);
    dashes.push_back(std::string(widths[c], '-'));
  }
  std::vector<std::string> lines{format(titles), format(dashes)};
  for (const auto& row : rows_) lines.push_back(format(row.empty() ? dashes : row));
  return lines;
}

}  // namespace muster
