#include "cli/text/text_table.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>

namespace muster {
namespace {

constexpr size_t kColumnGap = 2;  // before each column

// The columns of a terminal that fmt counts when it pads: two for 犬, none for a later byte.
size_t ColumnsOf(const std::string& cell) {
  return 2 * cell.size() - fmt::formatted_size("{:<{}}", cell, cell.size());
}

}  // namespace

std::vector<size_t> TextTable::Widths() const {
  std::vector<size_t> widths;
  for (const Column& column : columns_) widths.push_back(column.title.size());
  for (const auto& row : rows_) {
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], ColumnsOf(row[c]));
  }
  return widths;
}

std::vector<std::string> TextTable::Lines(int width) const {
  const std::vector<size_t> widths = Widths();
  std::vector<size_t> shown(columns_.size());
  std::iota(shown.begin(), shown.end(), 0);
  const auto rank = [&](size_t c) { return columns_[c].rank; };
  const auto sum = [&] {
    return std::accumulate(shown.begin(), shown.end(), size_t{0},
                           [&](size_t all, size_t c) { return all + kColumnGap + widths[c]; });
  };
  while (!shown.empty() && sum() > static_cast<size_t>(std::max(0, width))) {
    const int last = rank(*std::ranges::max_element(shown, {}, rank));
    if (last == 0) break;
    std::erase_if(shown, [&](size_t c) { return rank(c) == last; });
  }
  const auto format = [&](const std::vector<std::string>& cells) {
    std::string line;
    for (const size_t c : shown) {
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
