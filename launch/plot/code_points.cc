#include "launch/plot/code_points.h"

#include <cstddef>

namespace muster {

std::vector<uint32_t> CodePoints(std::string_view text) {
  std::vector<uint32_t> points;
  for (size_t at = 0; at < text.size();) {
    const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[at + i]); };
    const uint8_t first = byte(0);
    const size_t more = first < 0xc2   ? 0
                        : first < 0xe0 ? 1
                        : first < 0xf0 ? 2
                        : first < 0xf5 ? 3
                                       : 0;
    uint32_t point = more == 0 ? first : first & (0x3fU >> more);
    bool whole = first < 0x80 || more > 0;
    for (size_t i = 1; i <= more && whole; ++i) {
      whole = at + i < text.size() && (byte(i) & 0xc0) == 0x80;
      if (whole) point = point << 6 | (byte(i) & 0x3fU);
    }
    const bool printable = whole && point >= 0x20 && point != 0x7f;
    points.push_back(printable ? point : '?');
    at += whole ? 1 + more : 1;
  }
  return points;
}

}  // namespace muster
