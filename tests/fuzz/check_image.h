// Checks that any part of a decodable photo, in any orientation and reduction, has the pixels of
// the whole.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "tests/fuzz/fuzz.h"
#include "worker/image/decode.h"

namespace muster::fuzz {

// `choices` selects the part. An error must have a text.
inline void CheckImage(const std::string& file, Input choices) {
  OrError("", [&] {
    const std::span bytes(reinterpret_cast<const uint8_t*>(file.data()), file.size());
    const ImageInfo info = ReadImageInfo(bytes);
    const ImageSize size = info.shown();
    if (size.height * size.width > 1 << 20) return;  // slow, and without additional coverage
    DecodeRequest request{.channels = choices.Byte() % 2 == 0 ? 1 : 3,
                          .region = {0, 0, size.height, size.width},
                          .reduction = int64_t{1} << choices.Byte() % 4};
    DecodeScratch scratch;
    Image whole, part;
    Decode(bytes, info, request, scratch, whole);
    request.region.top = choices.Number<uint16_t>() % size.height;
    request.region.left = choices.Number<uint16_t>() % size.width;
    request.region.height = 1 + choices.Number<uint16_t>() % (size.height - request.region.top);
    request.region.width = 1 + choices.Number<uint16_t>() % (size.width - request.region.left);
    Decode(bytes, info, request, scratch, part);
    const int64_t top = (part.top - whole.top) / whole.reduction;
    const int64_t left = (part.left - whole.left) / whole.reduction;
    Require(top >= 0 && top + part.height <= whole.height, "a part beyond the whole's rows");
    Require(left >= 0 && left + part.width <= whole.width, "a part beyond the whole's columns");
    for (int64_t row = 0; row < part.height; ++row) {
      Require(
          std::equal(part.pixels.begin() + row * part.width * part.channels,
                     part.pixels.begin() + (row + 1) * part.width * part.channels,
                     whole.pixels.begin() + ((top + row) * whole.width + left) * whole.channels),
          "a part that differs from the whole");
    }
  });
}

}  // namespace muster::fuzz
