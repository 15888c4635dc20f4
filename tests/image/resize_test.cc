// Compares resizing with closed forms, plain loops in double, and the bits of Pillow.
#include "worker/image/resize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/image/encode.h"

namespace muster {
namespace {

using testing::Bytes;
using testing::Photo;
using testing::WholeImage;

ImageBox Whole(ImageSize size) { return {0, 0, size.height, size.width}; }

SampleGeometry WholeTo(ImageSize photo, ImageSize resized) {
  return {.region = Whole(photo), .resized = resized, .window = Whole(resized)};
}

Bytes Resized(const Image& image, const SampleGeometry& geometry,
              ResizeFilter filter = ResizeFilter::kBilinear) {
  ResizeScratch scratch;
  Bytes sample(
      static_cast<size_t>(geometry.window.height * geometry.window.width * image.channels));
  Resize(image, geometry, filter, scratch, sample.data());
  return sample;
}

uint64_t Fnv(const Bytes& bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const uint8_t byte : bytes) hash = (hash ^ byte) * 0x100000001b3;
  return hash;
}

Image Pattern(ImageSize size, int channels) {
  Bytes pixels;
  for (int64_t y = 0; y < size.height; ++y) {
    for (int64_t x = 0; x < size.width; ++x) {
      for (int k = 0; k < channels; ++k) {
        pixels.push_back(static_cast<uint8_t>(31 * y + 17 * x + 91 * k + y * x % 251 * 7));
      }
    }
  }
  return WholeImage(size.height, size.width, channels, std::move(pixels));
}

// Hashes of Image.resize(size, Image.BILINEAR) of the region, by Pillow 13.0.0.
TEST(Resize, BilinearHasPillowsBits) {
  const struct {
    ImageSize photo;
    int channels;
    ImageBox region;
    ImageSize resized;
    uint64_t hash;
  } cases[] = {
      {{37, 53}, 3, {0, 0, 37, 53}, {16, 24}, 0x76052b498fd1fe69},
      {{16, 24}, 3, {0, 0, 16, 24}, {37, 53}, 0x8da93c0856fc1f9b},
      {{100, 75}, 1, {0, 0, 100, 75}, {100, 20}, 0x6b89b64d80b3a97f},
      {{375, 500}, 3, {20, 31, 300, 410}, {224, 224}, 0x9e199f0dec0bb0f1},
      {{200, 150}, 1, {3, 5, 190, 140}, {7, 11}, 0x5b56714c86b4b7eb},
      {{64, 64}, 3, {1, 2, 9, 11}, {48, 50}, 0x95edac597f393b0c},
  };
  for (const auto& c : cases) {
    const SampleGeometry geometry{
        .region = c.region, .resized = c.resized, .window = Whole(c.resized)};
    EXPECT_EQ(Fnv(Resized(Pattern(c.photo, c.channels), geometry)), c.hash);
  }
}

// One channel of one resulting pixel, in double.
double Plain(const Image& image, const SampleGeometry& geometry, ResizeFilter filter, int64_t row,
             int64_t column, int64_t channel) {
  // The weight of the image's pixel `at` in the result's pixel `out`.
  const auto weight = [&](double begin, double length, double resized, int64_t at, int64_t out) {
    const double scale = length / resized;
    if (filter == ResizeFilter::kArea) {
      const double start = begin + static_cast<double>(out) * scale,
                   pixel = static_cast<double>(at);
      return std::max(0.0, std::min(start + scale, pixel + 1) - std::max(start, pixel));
    }
    const double centre = begin + (static_cast<double>(out) + 0.5) * scale;
    const double distance = std::abs(static_cast<double>(at) + 0.5 - centre);
    return std::max(0.0, 1 - distance / std::max(scale, 1.0));
  };
  const ImageBox& region = geometry.region;
  double sum = 0, weights = 0;
  for (int64_t y = region.top; y < region.top + region.height; ++y) {
    const double down = weight(static_cast<double>(region.top), static_cast<double>(region.height),
                               static_cast<double>(geometry.resized.height), y, row);
    if (down == 0) continue;
    for (int64_t x = region.left; x < region.left + region.width; ++x) {
      const double across =
          weight(static_cast<double>(region.left), static_cast<double>(region.width),
                 static_cast<double>(geometry.resized.width), x, column);
      sum += down * across * image.pixels[(y * image.width + x) * image.channels + channel];
      weights += down * across;
    }
  }
  return sum / weights;
}

constexpr ResizeFilter kFilters[] = {ResizeFilter::kBilinear, ResizeFilter::kArea};
constexpr ImageSize kSizes[] = {{9, 14}, {30, 40}, {31, 39}, {7, 80}, {75, 3}, {1, 1}, {64, 90}};

TEST(Resize, AsPlainLoops) {
  for (const int channels : {1, 3}) {
    const Image image = WholeImage(33, 45, channels, Photo(33, 45, channels));
    for (const ResizeFilter filter : kFilters) {
      for (const ImageSize& size : kSizes) {
        const SampleGeometry geometry{
            .region = {2, 4, 30, 40}, .resized = size, .window = Whole(size)};
        const Bytes sample = Resized(image, geometry, filter);
        for (size_t i = 0; i < sample.size(); ++i) {
          const auto at = static_cast<int64_t>(i);
          const double expected = Plain(image, geometry, filter, at / channels / size.width,
                                        at / channels % size.width, at % channels);
          ASSERT_NEAR(sample[i], expected, 1.01)
              << size.height << " " << size.width;  // rounded twice
        }
      }
    }
  }
}

TEST(Resize, OneColourStays) {
  for (const uint8_t value : {0, 1, 128, 255}) {
    const Image image = WholeImage(30, 40, 3, Bytes(30 * 40 * 3, value));
    for (const ResizeFilter filter : kFilters) {
      for (const ImageSize& size : kSizes) {
        const Bytes sample = Resized(image, WholeTo({30, 40}, size), filter);
        ASSERT_EQ(sample, Bytes(sample.size(), value));
      }
    }
  }
}

TEST(Resize, SameSizeIsTheSame) {
  const Image image = WholeImage(30, 40, 3, Photo(30, 40, 3));
  for (const ResizeFilter filter : kFilters) {
    EXPECT_EQ(Resized(image, WholeTo({30, 40}, {30, 40}), filter), image.pixels);
  }
}

TEST(Resize, AreaOfWholePixelsIsTheirMean) {
  // Means of 3 pixels, then of 4, each rounded.
  const Image image = WholeImage(12, 15, 1, Photo(12, 15, 1));
  const Bytes sample = Resized(image, WholeTo({12, 15}, {3, 5}), ResizeFilter::kArea);
  for (int i = 0; i < 15; ++i) {
    double sum = 0;
    for (int y = 0; y < 4; ++y) {
      const uint8_t* three = &image.pixels[(i / 5 * 4 + y) * 15 + i % 5 * 3];
      sum += std::round((three[0] + three[1] + three[2]) / 3.0);
    }
    EXPECT_EQ(sample[i], std::floor(sum / 4 + 0.5));
  }
}

TEST(Resize, OfARegionIsOfItsCutOut) {
  const Image image = WholeImage(50, 60, 3, Photo(50, 60, 3));
  const ImageBox region{7, 9, 31, 40};
  Bytes cut;
  for (int64_t y = 0; y < region.height; ++y) {
    const auto first = image.pixels.begin() + ((region.top + y) * 60 + region.left) * 3;
    cut.insert(cut.end(), first, first + region.width * 3);
  }
  const Image cut_out = WholeImage(region.height, region.width, 3, cut);
  for (const ResizeFilter filter : kFilters) {
    for (const ImageSize& size : kSizes) {
      const SampleGeometry geometry{.region = region, .resized = size, .window = Whole(size)};
      EXPECT_EQ(Resized(image, geometry, filter),
                Resized(cut_out, WholeTo({region.height, region.width}, size), filter));
    }
  }
}

TEST(Resize, WindowsAreCutFlippedAndPadded) {
  const Image image = WholeImage(50, 60, 3, Photo(50, 60, 3));
  const ImageSize resized{21, 26};
  SampleGeometry geometry = WholeTo({50, 60}, resized);
  const Bytes whole = Resized(image, geometry);
  for (const ImagePadding padding : {ImagePadding::kZero, ImagePadding::kReflect}) {
    for (const ImageBox& window : {ImageBox{3, 5, 10, 9}, ImageBox{-4, -6, 12, 40},
                                   ImageBox{15, 20, 30, 30}, ImageBox{-30, 70, 3, 4}}) {
      for (const bool flip : {false, true}) {
        geometry.window = window;
        geometry.padding = padding;
        geometry.flip = flip;
        const Bytes sample = Resized(image, geometry);
        for (int64_t i = 0; i < window.height * window.width; ++i) {
          const int64_t column = i % window.width;
          int64_t y = window.top + i / window.width;
          int64_t x = window.left + (flip ? window.width - 1 - column : column);
          const bool black = padding == ImagePadding::kZero &&
                             (y < 0 || y >= resized.height || x < 0 || x >= resized.width);
          // Reflects between the edges.
          while (y < 0 || y >= resized.height) y = y < 0 ? -y : 2 * (resized.height - 1) - y;
          while (x < 0 || x >= resized.width) x = x < 0 ? -x : 2 * (resized.width - 1) - x;
          for (int k = 0; k < 3; ++k) {
            ASSERT_EQ(sample[i * 3 + k], black ? 0 : whole[(y * resized.width + x) * 3 + k]);
          }
        }
      }
    }
  }
}

TEST(Resize, NeedsNoMoreThanTheNeededRegion) {
  const Image image = WholeImage(50, 60, 1, Photo(50, 60, 1));
  for (const ResizeFilter filter : kFilters) {
    for (const ImageSize& size : kSizes) {
      SampleGeometry geometry{.region = {2, 3, 45, 50}, .resized = size};
      geometry.window = {size.height / 3, size.width / 3, (size.height + 1) / 2,
                         (size.width + 2) / 3};
      const ImageBox needed = NeededRegion(geometry, filter);
      EXPECT_GE(needed.top, 2);
      EXPECT_LE(needed.left + needed.width, 53);
      Image part = WholeImage(needed.height, needed.width, 1, {});
      part.top = needed.top;
      part.left = needed.left;
      for (int64_t i = 0; i < needed.height * needed.width; ++i) {
        part.pixels.push_back(
            image.pixels[(needed.top + i / needed.width) * 60 + needed.left + i % needed.width]);
      }
      EXPECT_EQ(Resized(part, geometry, filter), Resized(image, geometry, filter));
    }
  }
  // Even if only padding is visible, something must be decoded.
  SampleGeometry padding = WholeTo({50, 60}, {10, 10});
  padding.window = {20, 20, 5, 5};
  const ImageBox one = NeededRegion(padding, ResizeFilter::kBilinear);
  EXPECT_EQ((ImageSize{one.height, one.width}), (ImageSize{1, 1}));
}

// A gradient stays the same when it is reduced, far from the edges.
TEST(Resize, OfAReducedImageIsInItsPlace) {
  Bytes slope;
  for (int i = 0; i < 96 * 104; ++i) slope.push_back(static_cast<uint8_t>(i / 104 + i % 104));
  const Image image = WholeImage(96, 104, 1, slope);
  Image reduced = WholeImage(24, 26, 1, {});
  reduced.reduction = 4;
  reduced.left = -2;  // as in a mirrored image
  for (int i = 0; i < 24 * 26; ++i) {
    const int row = i / 26 * 4, column = i % 26 * 4 - 2;
    const double mean = row + 1.5 + column + 1.5;
    reduced.pixels.push_back(static_cast<uint8_t>(std::lround(std::max(mean, 0.0))));
  }
  for (const ResizeFilter filter : kFilters) {
    const SampleGeometry geometry{
        .region = {5, 3, 88, 90}, .resized = {13, 17}, .window = {1, 1, 11, 15}};
    const Bytes full = Resized(image, geometry, filter), close = Resized(reduced, geometry, filter);
    for (size_t i = 0; i < full.size(); ++i) EXPECT_NEAR(full[i], close[i], 1);
  }
}

TEST(LargestReduction, KeepsAtLeastTheResult) {
  const auto of = [](int64_t height, int64_t width) {
    return LargestReduction({.region = {0, 0, height, width}, .resized = {100, 50}});
  };
  EXPECT_EQ(of(50, 50), 1);
  EXPECT_EQ(of(199, 400), 1);
  EXPECT_EQ(of(200, 400), 2);
  EXPECT_EQ(of(900, 399), 4);
  EXPECT_EQ(of(800, 400), 8);
  EXPECT_EQ(of(9000, 9000), 8);
}

}  // namespace
}  // namespace muster
