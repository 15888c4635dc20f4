// Reads PNGs in the format that Muster writes: row by row, without filters.
#pragma once

#include <cstdint>
#include <string>

namespace muster::testing {

class PngReader {
 public:
  // Checks every chunk. Adds a failure for each error.
  explicit PngReader(const std::string& file);

  int width() const { return width_; }
  int height() const { return height_; }
  uint32_t At(int x, int y) const;  // 0xrrggbb

 private:
  int width_ = 0, height_ = 0;
  std::string rows_;
};

}  // namespace muster::testing
