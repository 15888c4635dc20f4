// The shape of one sample as it flows between layers.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <string>

namespace muster {

// height x width x channels, channels fastest in memory. A row of n features is 1 x 1 x n.
struct Shape {
  int64_t height = 1;
  int64_t width = 1;
  int64_t channels = 1;

  int64_t elements() const { return height * width * channels; }
  bool operator==(const Shape&) const = default;
  std::string ToString() const { return fmt::format("{}x{}x{}", height, width, channels); }
};

}  // namespace muster
