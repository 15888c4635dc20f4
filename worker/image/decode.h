// Decodes the bytes of a JPEG or PNG file into 8-bit pixels.
//
// The pixels depend on the bytes and on the version of libjpeg-turbo, not on the processor: the
// inverse DCT is the accurate integer one, and chroma is upsampled by libjpeg's triangle filter.
// Decoding rules:
//   - The orientation in EXIF or, if that has none, in XMP is applied ("as shown" below means after
//     that). Compressed XMP in a PNG is not read.
//   - Grey becomes RGB by repetition. RGB becomes grey: (19595 R + 38470 G + 7471 B + 32768) /
//     65536. libjpeg uses the same weights for a JPEG in YCbCr or RGB.
//   - CMYK and YCCK become RGB as R = (255 - C) (255 - K) / 255, rounded. The file stores 255 - C
//     and 255 - K, as Adobe's programs write it, and as Pillow reads it without their marker, too.
//   - Samples of 16 bits keep their upper 8. Grey of 1, 2 and 4 bits is scaled to 0 … 255.
//   - A palette index without an entry is black.
//   - Alpha is dropped like in Pillow's convert("RGB"): the colour below it is kept.
//   - ICC profiles and gamma are ignored.
//
// Pure functions: any thread may call them with its own scratch memory. They throw Error(kData) for
// data that is damaged, truncated, too large or in another format. The message does not name the
// file; the caller prefixes the name.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "worker/image/image.h"

namespace muster {

// Larger images are rejected before memory is allocated: Pillow's limit, 1 GiB / 4 / 3 x 2.
inline constexpr int64_t kMaxImagePixels = 178'956'970;
inline constexpr int64_t kMaxImageSide = 65'535;  // JPEG's own limit

enum class ImageKind { kJpeg, kPng };

struct ImageInfo {
  ImageKind kind = ImageKind::kJpeg;
  ImageSize stored;
  int orientation = 1;  // EXIF's number, 1 to 8

  ImageSize shown() const {
    return orientation >= 5 ? ImageSize{stored.width, stored.height} : stored;
  }
  bool operator==(const ImageInfo&) const = default;
};

// Reads only the header. Rejects images of more than kMaxImagePixels, and sizes that are impossible
// for a file of this length.
ImageInfo ReadImageInfo(std::span<const uint8_t> bytes);

struct DecodeRequest {
  int64_t channels = 3;  // 1: grey; 3: red, green, blue
  ImageBox region;       // of the photo as shown; inside it and not empty
  // 1, 2, 4 or 8: a JPEG is decoded at 1/reduction of its size, which is faster. Ignored for a PNG.
  int64_t reduction = 1;
};

// Damage that libjpeg tolerates, such as stray bytes between segments.
struct DecodeWarnings {
  int64_t count = 0;
  std::string first;  // libjpeg's text; empty without a warning
};

// Scratch memory, reused between calls.
struct DecodeScratch {
  std::vector<uint8_t> row, whole, stored;
};

// Decodes the pixels that the region touches, with the same bits as in the whole image. `info` must
// be ReadImageInfo's result for these bytes. Bytes for rows below the region might not be read, so
// damage there can go unnoticed. Apart from the libraries' own memory, memory is allocated only for
// an image larger than all previous ones.
DecodeWarnings Decode(std::span<const uint8_t> bytes, const ImageInfo& info,
                      const DecodeRequest& request, DecodeScratch& scratch, Image& image);

}  // namespace muster
