// A table that leaves out what matters least where a terminal is narrow.
#pragma once

#include <string>
#include <vector>

#include "cli/text/text_table.h"

namespace muster {

struct FittedColumn {
  int rank = 0;  // the one with the largest is the first to go; 0 and 1 stay
  TextTable::Column column;
  std::vector<std::string> cells;  // one for each row
};

// Lines of at most `width` characters, if the columns that stay allow it.
std::vector<std::string> FittedTable(const std::vector<FittedColumn>& columns, int width);

}  // namespace muster
