// Encodes JPEG and PNG files of every kind.
#pragma once

#include <cstdint>
#include <cstdio>
// Needs FILE from above.
#include <jpeglib.h>

#include <string>
#include <vector>

#include "worker/image/image.h"

namespace muster::testing {

using Bytes = std::vector<uint8_t>;

struct JpegSpec {
  int height = 1, width = 1;
  Bytes pixels;  // [row][column][component], in the colours `in`
  J_COLOR_SPACE in = JCS_RGB, stored = JCS_YCbCr;
  int quality = 90;
  int across = 1, down = 1;  // samples of the first component per sample of the others
  bool progressive = false;
  int restart_rows = 0;  // a restart marker after this many rows of blocks
  bool adobe = true;     // its marker, in CMYK and YCCK
  Bytes app1;            // the contents of an APP1 marker; empty: none
};
Bytes EncodeJpeg(const JpegSpec& spec);

// The contents of an APP1 marker: EXIF with another tag, then the orientation.
Bytes Exif(int orientation, bool big_endian);

struct PngSpec {
  uint32_t height = 1, width = 1;
  std::vector<uint16_t> samples;  // [row][column][sample]
  int bits = 8, color_type = 2;   // as in IHDR
  bool interlaced = false;
  uint32_t claimed_height = 0;  // in IHDR if not 0
  Bytes palette, transparency;  // PLTE and tRNS; empty: none
};
// Implements the standard without libraries, except for deflate.
Bytes EncodePng(const PngSpec& spec);
int SamplesOf(int color_type);

// Smooth shapes with some noise, 0 … 255, always the same. Resembles a photo for encoders.
Bytes Photo(int height, int width, int channels);

// An Image with these pixels, as if just decoded.
Image WholeImage(int64_t height, int64_t width, int64_t channels, Bytes pixels);

}  // namespace muster::testing
