// Pixels of a photo in memory, and rectangles of them.
#pragma once

#include <cstdint>
#include <vector>

namespace muster {

struct ImageSize {
  int64_t height = 0, width = 0;
  bool operator==(const ImageSize&) const = default;
};

// Rows [top, top + height) and columns [left, left + width).
struct ImageBox {
  int64_t top = 0, left = 0, height = 0, width = 0;
  bool operator==(const ImageBox&) const = default;
};

// A part of a photo, optionally reduced: each pixel is the mean of about reduction x reduction
// pixels of the photo as shown. Row r covers the photo's rows from top + r * reduction, column c
// its columns from left + c * reduction. The outermost rows and columns may reach beyond the
// photo's edge, so `top` and `left` may be negative.
struct Image {
  int64_t height = 0, width = 0, channels = 0;
  int64_t reduction = 1;
  int64_t top = 0, left = 0;
  std::vector<uint8_t> pixels;  // [row][column][channel]; channels are grey, or red, green, blue
};

}  // namespace muster
