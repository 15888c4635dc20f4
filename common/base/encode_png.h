// Encodes pictures as PNG files.
#pragma once

#include <cstdint>
#include <string>

namespace muster {

// `pixels`: rows of red, green and blue bytes. Returns the whole file.
std::string EncodePng(uint32_t height, uint32_t width, const std::string& pixels);

}  // namespace muster
