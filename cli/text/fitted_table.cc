#include "cli/text/fitted_table.h"

#include <algorithm>

namespace muster {
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
