// Reads PNGs as they are written here: one row after the other, without filters.
#pragma once

#include <cstdint>
#include <string>

namespace muster::testing {

class PngReader {
 public:
  // Checks every chunk; adds a failure for what is wrong.
  explicit PngReader(const std::string& file);

  int width() const { return width_; }
  int height() const { return height_; }
  uint32_t At(int x, int y) const;  // 0xrrggbb

 private:
  int width_ = 0, height_ = 0;
  std::string rows_;
};

}  // namespace muster::testing
