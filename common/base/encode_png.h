// Writes pictures as PNG files.
#pragma once

#include <cstdint>
#include <string>

namespace muster {

// `pixels`: row by row red, green and blue, a byte each. Returns the whole file.
std::string EncodePng(uint32_t height, uint32_t width, const std::string& pixels);

}  // namespace muster
