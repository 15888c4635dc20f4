// A table in plain text: columns as wide as their widest cell.
#pragma once

#include <string>
#include <vector>

namespace muster {

class TextTable {
 public:
  struct Column {
    std::string title;
    bool number = false;  // right-aligned
  };
  explicit TextTable(std::vector<Column> columns) : columns_(std::move(columns)) {}

  void AddRow(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  void AddRule() { rows_.emplace_back(); }  // a line of dashes

  std::vector<std::string> Lines() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

struct FittedColumn {
  int rank = 0;  // the highest rank is dropped first; 0 and 1 are never dropped
  TextTable::Column column;
  std::vector<std::string> cells;  // one for each row
};

// Drops columns until lines have at most `width` characters, if possible.
std::vector<std::string> FittedTable(const std::vector<FittedColumn>& columns, int width);

}  // namespace muster
