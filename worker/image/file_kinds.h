// The readers of the two file formats, for decode.cc. They ignore orientation and throw
// Error(kData) for data that they cannot decode.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "worker/image/decode.h"

namespace muster {

struct ImageHeader {
  ImageInfo info;
  int64_t least_bytes = 0;  // the minimum length of a complete file with this many pixels
};

// `box` is in pixels of the stored image (for a JPEG, after reduction). Writes
// [row][column][channel] to `pixels`.
ImageHeader ReadJpegHeader(std::span<const uint8_t> bytes);
DecodeWarnings ReadJpeg(std::span<const uint8_t> bytes, int64_t reduction, const ImageBox& box,
                        int64_t channels, DecodeScratch& scratch, uint8_t* pixels);

ImageHeader ReadPngHeader(std::span<const uint8_t> bytes);
void ReadPng(std::span<const uint8_t> bytes, const ImageBox& box, int64_t channels,
             DecodeScratch& scratch, uint8_t* pixels);

inline uint8_t Grey(uint32_t red, uint32_t green, uint32_t blue) {
  return static_cast<uint8_t>((19595 * red + 38470 * green + 7471 * blue + 32768) >> 16);
}

// Copies RGB pixels, or their grey values if `channels` is 1.
inline void StoreRgb(const uint8_t* rgb, int64_t count, int64_t channels, uint8_t* out) {
  if (channels == 3) {
    std::copy_n(rgb, 3 * count, out);
    return;
  }
  for (int64_t i = 0; i < count; ++i) out[i] = Grey(rgb[3 * i], rgb[3 * i + 1], rgb[3 * i + 2]);
}

}  // namespace muster
