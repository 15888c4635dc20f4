// Compares every kind of PNG file with its pixels.
#include <gtest/gtest.h>

#include "common/base/random.h"
#include "tests/image/decode_fixture.h"

namespace muster::testing {
namespace {

struct PngCase {
  int color_type, bits;
};

// Random samples and the pixels that they represent.
PngSpec RandomPng(const PngCase& kind, uint32_t height, uint32_t width, Bytes& rgb) {
  PngSpec spec{.height = height, .width = width, .bits = kind.bits, .color_type = kind.color_type};
  const int count = SamplesOf(kind.color_type);
  if (kind.color_type == 3) {
    for (int i = 0; i < 3 << kind.bits; ++i) {
      spec.palette.push_back(static_cast<uint8_t>(Philox({static_cast<uint32_t>(i)}, {7})[0]));
    }
    spec.transparency = {0, 128};
  }
  const bool color = kind.color_type == 2 || kind.color_type == 6;
  for (uint32_t i = 0; i < height * width; ++i) {
    const auto bits = Philox({i}, {});
    for (int k = 0; k < count; ++k) {
      spec.samples.push_back(static_cast<uint16_t>(bits[k] >> (32 - kind.bits)));
    }
    const uint16_t* samples = &spec.samples[static_cast<size_t>(i) * count];
    for (int k = 0; k < 3; ++k) {
      const int sample = samples[color ? k : 0], most = (1 << kind.bits) - 1;
      rgb.push_back(static_cast<uint8_t>(kind.color_type == 3 ? spec.palette[3 * sample + k]
                                         : kind.bits == 16    ? sample >> 8
                                                              : sample * 255 / most));
    }
  }
  return spec;
}

constexpr PngCase kPngCases[] = {{0, 1}, {0, 2}, {0, 4}, {0, 8}, {0, 16}, {2, 8}, {2, 16}, {3, 1},
                                 {3, 2}, {3, 4}, {3, 8}, {4, 8}, {4, 16}, {6, 8}, {6, 16}};

TEST(Png, EveryKindIsRead) {
  for (const PngCase& kind : kPngCases) {
    for (const bool interlaced : {false, true}) {
      SCOPED_TRACE(::testing::Message() << kind.color_type << " " << kind.bits << interlaced);
      Bytes rgb;
      PngSpec spec = RandomPng(kind, 21, 19, rgb);
      spec.interlaced = interlaced;
      const Bytes file = EncodePng(spec);
      EXPECT_EQ(ReadImageInfo(file), (ImageInfo{.kind = ImageKind::kPng, .stored = {21, 19}}));
      EXPECT_EQ(DecodeWhole(file).pixels, rgb);
      const Image grey = DecodeWhole(file, 1, 8);
      EXPECT_EQ(grey.reduction, 1);
      for (size_t i = 0; i < grey.pixels.size(); ++i) {
        const double sum = 19595. * rgb[3 * i] + 38470. * rgb[3 * i + 1] + 7471. * rgb[3 * i + 2];
        ASSERT_EQ(grey.pixels[i], std::floor((sum + 32768) / 65536));
      }
      ExpectPartsOfWhole(file, 3, 1, 20);
      ExpectPartsOfWhole(file, 1, 1, 20);
    }
  }
}

TEST(Png, AlphaIsDropped) {
  // Includes the colour that tRNS makes transparent.
  PngSpec spec{.height = 1, .width = 2, .samples = {1, 2, 3, 9, 8, 7}};
  spec.transparency = {0, 1, 0, 2, 0, 3};
  EXPECT_EQ(DecodeWhole(EncodePng(spec)).pixels, (Bytes{1, 2, 3, 9, 8, 7}));
  spec = {.height = 1, .width = 2, .samples = {1, 2, 3, 0, 9, 8, 7, 40}, .color_type = 6};
  EXPECT_EQ(DecodeWhole(EncodePng(spec)).pixels, (Bytes{1, 2, 3, 9, 8, 7}));
}

TEST(Png, OrientationIsFoundBeforeAndAfterThePixels) {
  using namespace std::string_literals;
  const Bytes exif = Exif(6, true), file = EncodePng({.samples = {1, 2, 3}});
  const std::string tiff(exif.begin() + 6, exif.end()), xmp = "tiff:Orientation=\"8\"";
  const auto with = [&](const std::string& type, const std::string& contents, size_t from_end) {
    const std::string chunk = "\0\0\0"s + static_cast<char>(contents.size()) + type + contents;
    Bytes changed = file;
    const auto at = changed.end() - static_cast<ptrdiff_t>(from_end);
    changed.insert(changed.insert(at, 4, 0), chunk.begin(), chunk.end());  // a wrong checksum
    EXPECT_EQ(DecodeWhole(changed).pixels, (Bytes{1, 2, 3}));
    return ReadImageInfo(changed).orientation;
  };
  for (const size_t from_end : {size_t{12}, file.size() - 33}) {  // IEND, IHDR
    EXPECT_EQ(with("eXIf", tiff, from_end), 6);
    EXPECT_EQ(with("eXIf", tiff.substr(0, 12), from_end), 1);
    EXPECT_EQ(with("iTXt", "XML:com.adobe.xmp\0\0\0\0\0"s + xmp, from_end), 8);
    EXPECT_EQ(with("iTXt", "XML:com.adobe.xmp\0\1\0\0\0"s + xmp, from_end), 1);
    EXPECT_EQ(with("tEXt", "XML:com.adobe.xmp\0"s + xmp, from_end), 1);
  }
  EXPECT_EQ(with("eXIf", tiff, 0), 1) << "after IEND";
}

TEST(Png, DamageIsRefused) {
  for (const bool interlaced : {false, true}) {
    Bytes rgb;
    PngSpec spec = RandomPng({2, 8}, 20, 20, rgb);
    spec.interlaced = interlaced;
    const Bytes file = EncodePng(spec);
    // Without IEND all pixels are still there.
    for (size_t size = 0; size + 20 < file.size(); ++size) {
      ExpectRefused({file.begin(), file.begin() + size}, " ");
    }
    Bytes changed = file;
    changed[60] ^= 1;
    ExpectRefused(changed, "this PNG cannot be decoded: ");
    changed = file;
    changed[23] ^= 1;  // the height, without a new checksum
    ExpectRefused(changed, "this PNG cannot be decoded: invalid chunk checksum");
  }
}

TEST(Png, AColourWithoutAnEntryIsBlack) {
  for (const int bits : {2, 8}) {
    for (const bool interlaced : {false, true}) {
      PngSpec spec{.height = 1, .width = 3, .samples = {3, 0, 1}, .bits = bits, .color_type = 3};
      spec.palette = {1, 2, 3};
      spec.interlaced = interlaced;
      EXPECT_EQ(DecodeWhole(EncodePng(spec)).pixels, (Bytes{0, 0, 0, 1, 2, 3, 0, 0, 0}));
    }
  }
}

TEST(Png, HugeSizesAreRefused) {
  PngSpec spec{.height = 1, .width = 20000, .color_type = 0};
  spec.samples.assign(20000, 5);
  EXPECT_EQ(DecodeWhole(EncodePng(spec), 1).pixels, Bytes(20000, 5));
  // The header of a tall image before the rows of a flat one.
  spec.claimed_height = 0x7FFFFFFF;
  ExpectRefused(EncodePng(spec), "20000 x 2147483647 pixels: expected at most 65535 on each side");
  spec.claimed_height = 60000;
  ExpectRefused(EncodePng(spec), "20000 x 60000 pixels: expected at most 178956970 in total");
  spec.claimed_height = 8000;
  ExpectRefused(EncodePng(spec), "the file is truncated: 20000 x 8000 pixels take at least 155046");
}

}  // namespace
}  // namespace muster::testing
