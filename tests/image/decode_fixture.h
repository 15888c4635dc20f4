// Decodes all or a part of a file, and compares parts with the whole.
#pragma once

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <string>

#include "common/base/random.h"
#include "tests/data/expect_error.h"
#include "tests/image/encode.h"
#include "worker/image/decode.h"

namespace muster::testing {

inline Image DecodeBox(const Bytes& file, const ImageBox& region, int64_t channels = 3,
                       int64_t reduction = 1) {
  DecodeScratch scratch;
  Image image;
  const DecodeWarnings warnings =
      Decode(file, ReadImageInfo(file),
             {.channels = channels, .region = region, .reduction = reduction}, scratch, image);
  EXPECT_EQ(warnings.count, 0) << warnings.first;
  return image;
}

inline Image DecodeWhole(const Bytes& file, int64_t channels = 3, int64_t reduction = 1) {
  const ImageSize size = ReadImageInfo(file).shown();
  return DecodeBox(file, {0, 0, size.height, size.width}, channels, reduction);
}

// The region of a whole image that `part` covers.
inline Bytes Cut(const Image& whole, const Image& part) {
  Bytes pixels;
  const int64_t top = (part.top - whole.top) / whole.reduction;
  const int64_t left = (part.left - whole.left) / whole.reduction;
  for (int64_t row = 0; row < part.height; ++row) {
    const auto* first = whole.pixels.data() + ((top + row) * whole.width + left) * whole.channels;
    pixels.insert(pixels.end(), first, first + part.width * whole.channels);
  }
  return pixels;
}

// Expects that decoded parts equal the whole and cover the requested regions.
inline void ExpectPartsOfWhole(const Bytes& file, int64_t channels, int64_t reduction, int parts) {
  const Image whole = DecodeWhole(file, channels, reduction);
  const ImageSize size = ReadImageInfo(file).shown();
  for (int i = 0; i < parts; ++i) {
    const auto bits = Philox({static_cast<uint32_t>(i)}, {});
    ImageBox box;
    box.top = bits[0] % size.height;
    box.left = bits[1] % size.width;
    box.height = 1 + bits[2] % (size.height - box.top);
    box.width = 1 + bits[3] % (size.width - box.left);
    const Image part = DecodeBox(file, box, channels, reduction);
    ASSERT_EQ(part.pixels, Cut(whole, part))
        << box.top << " " << box.left << " " << box.height << " " << box.width;
    EXPECT_LE(part.top, box.top);
    EXPECT_LE(part.left, box.left);
    EXPECT_GT(part.top + reduction, box.top);
    EXPECT_GT(part.left + reduction, box.left);
    EXPECT_GE(part.top + part.height * reduction, box.top + box.height);
    EXPECT_GE(part.left + part.width * reduction, box.left + box.width);
  }
}

inline void ExpectRefused(const Bytes& file, const std::string& why) {
  EXPECT_MUSTER_ERROR(DecodeWhole(file), ExitCode::kData, ::testing::HasSubstr(why));
}

}  // namespace muster::testing
