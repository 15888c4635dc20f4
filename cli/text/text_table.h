// A table in plain text: columns as wide as their widest cell.
#pragma once

#include <limits>
#include <string>
#include <vector>

namespace muster {

class TextTable {
 public:
  struct Column {
    std::string title;
    bool number = false;  // right-aligned
    int rank = 0;         // to fit a width, the highest rank is dropped first; 0 never
  };
  explicit TextTable(std::vector<Column> columns) : columns_(std::move(columns)) {}

  void AddRow(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  void AddRule() { rows_.emplace_back(); }  // a line of dashes

  // Drops columns until lines have at most `width` characters, if possible.
  std::vector<std::string> Lines(int width = std::numeric_limits<int>::max()) const;

 private:
  std::vector<size_t> Widths() const;  // of the columns

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace muster
