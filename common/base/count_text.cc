#include "common/base/count_text.h"

namespace muster {

std::string FormatCount(int64_t value) {
  std::string digits = std::to_string(value);
  int first = value < 0 ? 1 : 0;
  for (int at = static_cast<int>(digits.size()) - 3; at > first; at -= 3)
    digits.insert(static_cast<size_t>(at), 1, ',');
  return digits;
}

}  // namespace muster
