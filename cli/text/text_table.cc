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

namespace {

std::vector<std::string> Table(const std::vector<FittedColumn>& columns, int most_rank) {
  std::vector<TextTable::Column> titles;
  std::vector<std::vector<std::string>> rows(columns.empty() ? 0 : columns[0].cells.size());
  for (const FittedColumn& one : columns) {
    if (one.rank > most_rank) continue;
    titles.push_back(one.column);
    for (size_t row = 0; row < rows.size(); ++row) rows[row].push_back(one.cells[row]);
  }
  TextTable table(titles);
  for (std::vector<std::string>& row : rows) table.AddRow(std::move(row));
  return table.Lines();
}

}  // namespace

std::vector<std::string> FittedTable(const std::vector<FittedColumn>& columns, int width) {
  int most_rank = 1;
  for (const FittedColumn& one : columns) most_rank = std::max(most_rank, one.rank);
  std::vector<std::string> lines = Table(columns, most_rank);
  const auto widest = [&] { return std::ranges::max(lines, {}, &std::string::size).size(); };
  while (most_rank > 1 && widest() > static_cast<size_t>(std::max(0, width))) {
    lines = Table(columns, --most_rank);
  }
  return lines;
}

}  // namespace muster
