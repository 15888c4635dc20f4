// Compares every kind of JPEG file with its pixels or libjpeg's plain loop.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "tests/image/decode_fixture.h"
#include "worker/image/exif.h"

namespace muster::testing {
namespace {

using ::testing::HasSubstr;

// Decodes a whole image with libjpeg's own loop.
Bytes PlainJpeg(const Bytes& file, J_COLOR_SPACE colors, int reduction) {
  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_decompress(&info);
  jpeg_mem_src(&info, file.data(), file.size());
  jpeg_read_header(&info, TRUE);
  info.out_color_space = colors;
  info.scale_denom = static_cast<unsigned>(reduction);
  jpeg_start_decompress(&info);
  const size_t row_bytes = size_t{info.output_width} * info.output_components;
  Bytes pixels(row_bytes * info.output_height);
  while (info.output_scanline < info.output_height) {
    uint8_t* row = pixels.data() + info.output_scanline * row_bytes;
    jpeg_read_scanlines(&info, &row, 1);
  }
  jpeg_destroy_decompress(&info);
  return pixels;
}

int LargestDifference(const Bytes& a, const Bytes& b) {
  EXPECT_EQ(a.size(), b.size());
  int largest = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    largest = std::max(largest, std::abs(a[i] - b[i]));
  }
  return largest;
}

// All ways to store three components.
std::vector<JpegSpec> ColorSpecs(int height, int width) {
  const JpegSpec plain{.height = height, .width = width, .pixels = Photo(height, width, 3)};
  std::vector<JpegSpec> specs(9, plain);
  specs[1].across = 2;
  specs[2].across = specs[2].down = 2;
  specs[3].down = 2;
  specs[4].across = specs[4].down = 2, specs[4].progressive = true;
  specs[5].across = 2, specs[5].restart_rows = 1;
  specs[6].stored = JCS_RGB;
  specs[7].across = 4;
  specs[8].across = 4, specs[8].down = 2;
  return specs;
}

JpegSpec GreySpec(int height, int width) {
  return {.height = height,
          .width = width,
          .pixels = Photo(height, width, 1),
          .in = JCS_GRAYSCALE,
          .stored = JCS_GRAYSCALE};
}

TEST(Jpeg, WholeImagesAreLibjpegs) {
  for (const JpegSpec& spec : ColorSpecs(61, 83)) {
    const Bytes file = EncodeJpeg(spec);
    EXPECT_EQ(ReadImageInfo(file), (ImageInfo{.kind = ImageKind::kJpeg, .stored = {61, 83}}));
    for (const int reduction : {1, 2, 4, 8}) {
      EXPECT_EQ(DecodeWhole(file, 3, reduction).pixels, PlainJpeg(file, JCS_RGB, reduction));
      EXPECT_EQ(DecodeWhole(file, 1, reduction).pixels, PlainJpeg(file, JCS_GRAYSCALE, reduction));
    }
  }
}

TEST(Jpeg, GreyIsRepeatedInRgb) {
  const JpegSpec spec = GreySpec(33, 47);
  const Bytes file = EncodeJpeg(spec);
  const Image grey = DecodeWhole(file, 1), rgb = DecodeWhole(file, 3);
  EXPECT_LE(LargestDifference(grey.pixels, spec.pixels), 16);
  for (size_t i = 0; i < rgb.pixels.size(); ++i) ASSERT_EQ(rgb.pixels[i], grey.pixels[i / 3]);
}

TEST(Jpeg, PixelsAreThoseThatWereEncoded) {
  JpegSpec spec{.height = 40, .width = 50, .pixels = Photo(40, 50, 3), .quality = 100};
  const Bytes file = EncodeJpeg(spec);
  EXPECT_LE(LargestDifference(DecodeWhole(file).pixels, spec.pixels), 4);
  const Bytes grey = DecodeWhole(file, 1).pixels;
  for (size_t i = 0; i < grey.size(); ++i) {
    const uint8_t* rgb = &spec.pixels[3 * i];
    ASSERT_NEAR(grey[i], 0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2], 3);
  }
}

TEST(Jpeg, CmykIsInvertedAlsoWithoutAdobesMarker) {
  // Cyan, magenta, yellow and black as stored in a file, and red, green and blue.
  const std::array<uint8_t, 4> stored{200, 100, 30, 220};
  for (const J_COLOR_SPACE colors : {JCS_CMYK, JCS_YCCK}) {
    for (const bool adobe : {true, false}) {
      if (colors == JCS_YCCK && !adobe) continue;  // only the marker distinguishes them
      JpegSpec spec{.height = 20, .width = 20, .in = JCS_CMYK, .stored = colors, .quality = 100};
      spec.adobe = adobe;
      for (int i = 0; i < 400; ++i) {
        spec.pixels.insert(spec.pixels.end(), stored.begin(), stored.end());
      }
      const Image image = DecodeWhole(EncodeJpeg(spec)), grey = DecodeWhole(EncodeJpeg(spec), 1);
      std::array<double, 3> rgb{};
      for (int k = 0; k < 3; ++k) {
        rgb[k] = stored[k] * stored[3] / 255.0;
        for (int i = 0; i < 400; ++i) ASSERT_NEAR(image.pixels[3 * i + k], rgb[k], 2);
      }
      ASSERT_NEAR(grey.pixels[7], 0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2], 2);
    }
  }
}

TEST(Jpeg, PartsAreTheWholesPixels) {
  std::vector<JpegSpec> specs = ColorSpecs(75, 101);
  specs.insert(specs.end(), 2, GreySpec(75, 101));
  specs.back().across = specs.back().down = 2;
  specs.push_back({.height = 75,
                   .width = 101,
                   .pixels = Photo(75, 101, 4),
                   .in = JCS_CMYK,
                   .stored = JCS_YCCK,
                   .across = 2,
                   .down = 2});
  for (JpegSpec& spec : specs) {
    spec.app1 = Exif(7, false);
    const Bytes file = EncodeJpeg(spec);
    for (const int reduction : {1, 2, 4, 8}) {
      ExpectPartsOfWhole(file, 3, reduction, 40);
      ExpectPartsOfWhole(file, 1, reduction, 10);
    }
  }
}

TEST(Jpeg, OrientationIsApplied) {
  constexpr int kHeight = 40, kWidth = 56;
  JpegSpec spec{.height = kHeight, .width = kWidth, .pixels = Photo(kHeight, kWidth, 3)};
  const Image stored = DecodeWhole(EncodeJpeg(spec));
  for (int orientation = 1; orientation <= 8; ++orientation) {
    for (const bool big_endian : {false, true}) {
      spec.app1 = Exif(orientation, big_endian);
      const Bytes file = EncodeJpeg(spec);
      EXPECT_EQ(ReadImageInfo(file).orientation, orientation);
      const Image shown = DecodeWhole(file);
      ASSERT_EQ(shown.height, orientation < 5 ? kHeight : kWidth);
      ASSERT_EQ(shown.width, orientation < 5 ? kWidth : kHeight);
      for (int64_t row = 0; row < shown.height; ++row) {
        for (int64_t column = 0; column < shown.width; ++column) {
          const int64_t up = kHeight - 1, across = kWidth - 1;
          const std::array<std::array<int64_t, 2>, 9> sources{{{},
                                                               {row, column},
                                                               {row, across - column},
                                                               {up - row, across - column},
                                                               {up - row, column},
                                                               {column, row},
                                                               {up - column, row},
                                                               {up - column, across - row},
                                                               {column, across - row}}};
          const auto [y, x] = sources[orientation];
          for (int k = 0; k < 3; ++k) {
            ASSERT_EQ(shown.pixels[(row * shown.width + column) * 3 + k],
                      stored.pixels[(y * kWidth + x) * 3 + k]);
          }
        }
      }
      for (const int reduction : {1, 4}) ExpectPartsOfWhole(file, 3, reduction, 10);
    }
  }
}

TEST(Jpeg, ReducedPixelsAreMeans) {
  // 45 is not a multiple of 8, so in the mirrored image the first column extends beyond the photo.
  JpegSpec spec{.height = 45, .width = 45, .quality = 100, .app1 = Exif(3, true)};
  for (int i = 0; i < 45 * 45; ++i) {
    const auto value = static_cast<uint8_t>(i / 45 * 2 + i % 45 * 3);
    spec.pixels.insert(spec.pixels.end(), 3, value);
  }
  const Image image = DecodeWhole(EncodeJpeg(spec), 1, 8);
  ASSERT_EQ((std::array{image.height, image.width, image.top, image.left}),
            (std::array<int64_t, 4>{6, 6, -3, -3}));
  for (int64_t row = 1; row < 6; ++row) {
    for (int64_t column = 1; column < 6; ++column) {
      const double y = image.top + 8 * row + 3.5, x = image.left + 8 * column + 3.5;
      EXPECT_NEAR(image.pixels[row * 6 + column], (44 - y) * 2 + (44 - x) * 3, 2);
    }
  }
}

std::string Xmp(const std::string& orientation) {
  return "<rdf:Description xmlns:tiff='x' tiff:Orientation" + orientation + "/>";
}

TEST(Orientation, OfDamagedExifIsUpright) {
  EXPECT_EQ(Orientation({}, ""), 1);
  const Bytes good = Exif(6, true);
  EXPECT_EQ(Orientation(good, ""), 6);
  for (size_t size = 0; size < 38; ++size) EXPECT_EQ(Orientation({good.data(), size}, ""), 1);
  const auto changed = [&](size_t at, uint8_t value) {
    Bytes bytes = good;
    bytes[at] = value;
    return Orientation(bytes, "");
  };
  EXPECT_EQ(changed(0, 'e'), 1);
  EXPECT_EQ(changed(7, 'I'), 1);
  EXPECT_EQ(changed(10, 0xFF), 1);  // a directory far away
  EXPECT_EQ(changed(31, 2), 1);     // text
  EXPECT_EQ(changed(35, 2), 1);     // two values
  EXPECT_EQ(changed(37, 9), 1);
  EXPECT_EQ(changed(37, 0), 1);
  EXPECT_EQ(changed(37, 8), 8);
}

TEST(Orientation, IsExifsOrXmps) {
  Bytes as_long = Exif(6, false);
  as_long[30] = 4;
  EXPECT_EQ(Orientation(as_long, Xmp("=\"3\"")), 6);
  EXPECT_EQ(Orientation(Exif(1, true), Xmp("=\"3\"")), 1);
  EXPECT_EQ(Orientation({}, Xmp("=\"3\"")), 3);
  EXPECT_EQ(Orientation({}, Xmp("") + "<tiff:Orientation>8</tiff:Orientation>"), 8);
  for (const char* text : {"", "=", "=\"", ">", "=\"x\"", "=\"9\"", "='6'"}) {
    EXPECT_EQ(Orientation({}, Xmp(text)), 1) << text;
  }
  EXPECT_EQ(Orientation({}, "tiff:Orientation=\""), 1);
}

TEST(Jpeg, OrientationIsFoundInSeveralSegments) {
  // The first segment ends within the directory, the last one is of another directory.
  const Bytes whole = Exif(6, true), other = Exif(3, true);
  Bytes first(whole.begin(), whole.begin() + 20), second(other.begin(), other.begin() + 6);
  second.insert(second.end(), whole.begin() + 20, whole.end());
  const auto with = [](const std::vector<Bytes>& segments) {
    Bytes file = EncodeJpeg({.pixels = {1, 2, 3}});
    for (auto segment = segments.rbegin(); segment != segments.rend(); ++segment) {
      const Bytes head{0xFF, 0xE1, 0, static_cast<uint8_t>(segment->size() + 2)};
      file.insert(file.begin() + 2, segment->begin(), segment->end());
      file.insert(file.begin() + 2, head.begin(), head.end());
    }
    return ReadImageInfo(file).orientation;
  };
  const auto xmp = [](const char* text) {
    const std::string all = std::string("http://ns.adobe.com/xap/1.0/") + '\0' + Xmp(text);
    return Bytes(all.begin(), all.end());
  };
  EXPECT_EQ(with({first, second, other}), 6);
  EXPECT_EQ(with({xmp("=\"2\""), xmp("=\"5\"")}), 5);
  EXPECT_EQ(with({xmp("=\"2\""), whole}), 6);
}

// The offset of marker 0xFF `type`.
size_t MarkerAt(const Bytes& file, uint8_t type) {
  for (size_t at = 2; at + 3 < file.size();) {
    if (file[at + 1] == type) return at;
    at += 2 + (file[at + 2] << 8 | file[at + 3]);
  }
  ADD_FAILURE() << "no such marker";
  return 0;
}

TEST(Jpeg, CutShortIsRefused) {
  for (JpegSpec spec : {ColorSpecs(24, 32)[2], ColorSpecs(24, 32)[4], GreySpec(24, 32)}) {
    const Bytes file = EncodeJpeg(spec);
    for (size_t size = 0; size + 2 < file.size(); ++size) {
      ExpectRefused({file.begin(), file.begin() + size}, " ");
    }
    ExpectRefused({file.begin(), file.end() - 10},
                  "this JPEG cannot be decoded: Premature end of JPEG file");
  }
}

TEST(Jpeg, DamageIsCountedOrRefused) {
  const JpegSpec spec = ColorSpecs(48, 64)[5];  // with restart markers
  Bytes file = EncodeJpeg(spec);
  DecodeScratch scratch;
  Image image;
  // Extra bytes before the end of the header.
  Bytes extra = file;
  const uint8_t nothing[] = {1, 2, 3};
  extra.insert(extra.begin() + static_cast<ptrdiff_t>(MarkerAt(file, 0xDA)), nothing, nothing + 3);
  const DecodeRequest whole{.region = {0, 0, 48, 64}};
  const DecodeWarnings warnings = Decode(extra, ReadImageInfo(extra), whole, scratch, image);
  EXPECT_EQ(warnings.count, 1);
  EXPECT_THAT(warnings.first, HasSubstr("3 extraneous bytes before marker 0xda"));
  EXPECT_EQ(image.pixels, DecodeWhole(file).pixels);

  const size_t size_at = MarkerAt(file, 0xC0) + 5;
  Bytes changed = file;
  changed[size_at] = changed[size_at + 2] = 0xFF;
  ExpectRefused(changed, "expected at most 178956970 in total");
  changed = file;
  changed[size_at] = changed[size_at + 2] = 0x20;
  ExpectRefused(changed, "the file is truncated: 8256 x 8240 pixels take at least 132870 bytes");
  changed = file;
  changed[size_at] = changed[size_at + 1] = 0;
  ExpectRefused(changed, "this JPEG cannot be decoded: ");
  changed = file;
  changed[MarkerAt(file, 0xC0) + 1] = 0xC3;
  ExpectRefused(changed, "Unsupported JPEG process: SOF type 0xc3");
}

TEST(Jpeg, TablesOfAnotherFileAreNotUsed) {
  Bytes file = EncodeJpeg(ColorSpecs(16, 16)[0]);
  DecodeWhole(file);
  const size_t at = MarkerAt(file, 0xDB);
  const size_t next = at + 2 + (file[at + 2] << 8 | file[at + 3]);
  file.erase(file.begin() + static_cast<ptrdiff_t>(at),
             file.begin() + static_cast<ptrdiff_t>(next));
  ExpectRefused(file, "Quantization table 0x00 was not defined");
}

TEST(Jpeg, ScansAreLimited) {
  const Bytes file = EncodeJpeg(ColorSpecs(16, 16)[4]);
  // Repeats the first scan.
  const size_t scan = MarkerAt(file, 0xDA);
  size_t end = scan + 2;
  while (file[end] != 0xFF || file[end + 1] == 0) ++end;
  Bytes many(file.begin(), file.begin() + static_cast<ptrdiff_t>(end));
  for (int i = 0; i < 300; ++i) {
    many.insert(many.end(), file.begin() + static_cast<ptrdiff_t>(scan),
                file.begin() + static_cast<ptrdiff_t>(end));
  }
  many.insert(many.end(), {0xFF, 0xD9});
  ExpectRefused(many, "more than 200 scans");
}

TEST(Files, OtherKindsAreRefused) {
  ExpectRefused({}, "expected a JPEG or PNG file, found an empty file");
  ExpectRefused(
      {'G', 'I', 'F', '7', '9', 'a', 1, 0, 1, 0},
      "expected a JPEG or PNG file, found a file that begins with 47 49 46 37 39 61 01 00");
  ExpectRefused({'R', 'I', 'F', 'F', 0, 0, 0, 0, 'W', 'E', 'B', 'P'}, "found a WebP image");
  ExpectRefused({0xFF, 0xD8}, "found a file that begins with FF D8");
  ExpectRefused({0xFF, 0xD8, 0xFF}, "this JPEG cannot be decoded: ");
  ExpectRefused({0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'}, "this PNG cannot be decoded: ");
}

TEST(Decode, ScratchIsKept) {
  // Several images with the same memory decode like separate ones.
  DecodeScratch scratch;
  Image image;
  const Bytes large = EncodeJpeg(ColorSpecs(90, 70)[2]), small = EncodeJpeg(GreySpec(9, 7));
  for (const Bytes& file : {large, small, large}) {
    const ImageInfo info = ReadImageInfo(file);
    const DecodeRequest request{.region = {1, 1, info.stored.height - 1, info.stored.width - 1}};
    Decode(file, info, request, scratch, image);
    EXPECT_EQ(image.pixels, DecodeBox(file, request.region).pixels);
  }
}

}  // namespace
}  // namespace muster::testing
