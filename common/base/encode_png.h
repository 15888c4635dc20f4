// Encodes images as PNG files.
#pragma once

#include <cstdint>
#include <string>

namespace muster {

// Returns the whole file. `pixels` has rows of red, green and blue bytes.
std::string EncodePng(uint32_t height, uint32_t width, const std::string& pixels);

}  // namespace muster
