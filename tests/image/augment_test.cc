// Random geometry and colour: range, distribution, and the same values for the same sample. Colour
// and normalisation are compared with plain loops in double.
#include "worker/image/augment.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <set>
#include <vector>

#include "tests/image/encode.h"
#include "worker/image/crop.h"

namespace muster {
namespace {

using testing::Bytes;
using testing::Photo;

constexpr int kDraws = 2000;
constexpr ImageSize kPhoto{375, 500}, kSample{224, 224};

void ExpectInside(const ImageBox& box, ImageSize size) {
  EXPECT_GE(box.top, 0);
  EXPECT_GE(box.left, 0);
  EXPECT_LE(box.top + box.height, size.height);
  EXPECT_LE(box.left + box.width, size.width);
}

TEST(ResizedCrop, AreasAndRatiosAreSpread) {
  double areas = 0, ratios = 0;
  std::set<int64_t> tops;
  for (int i = 0; i < kDraws; ++i) {
    const SampleGeometry drawn =
        DrawResizedCrop(kResizedCropBox, kSample, kPhoto, ImageStream(1, 2, i));
    EXPECT_EQ(drawn, DrawResizedCrop(kResizedCropBox, kSample, kPhoto, ImageStream(1, 2, i)));
    EXPECT_EQ(drawn.resized, kSample);
    EXPECT_EQ(drawn.window, (ImageBox{0, 0, 224, 224}));
    ExpectInside(drawn.region, kPhoto);
    const double height = static_cast<double>(drawn.region.height);
    const double width = static_cast<double>(drawn.region.width);
    const double area = height * width / (375. * 500), ratio = width / height;
    EXPECT_GE(area, 0.079);
    EXPECT_GE(ratio, 0.74);
    EXPECT_LE(ratio, 1.35);
    areas += area / kDraws;
    ratios += std::log(ratio) / kDraws;
    tops.insert(drawn.region.top);
  }
  // Large boxes and low ratios fit less often: 0.431 and 0.031 in torchvision.
  EXPECT_NEAR(areas, 0.431, 0.015);
  EXPECT_NEAR(ratios, 0.031, 0.012);
  EXPECT_GT(tops.size(), 150u);
}

TEST(ResizedCrop, EachKeyDrawsAnew) {
  const auto draw = [](uint64_t seed, int64_t epoch, int64_t sample) {
    return DrawResizedCrop(kResizedCropBox, kSample, kPhoto, ImageStream(seed, epoch, sample));
  };
  const SampleGeometry first = draw(1, 2, 3);
  EXPECT_NE(first, draw(2, 2, 3));
  EXPECT_NE(first, draw(1, 3, 3));
  EXPECT_NE(first, draw(1, 2, 4));
}

// Golden values: a change would change every training.
TEST(ResizedCrop, DrawsAreKept) {
  const auto region = [](int64_t sample) {
    return DrawResizedCrop(kResizedCropBox, kSample, kPhoto, ImageStream(42, 1, sample)).region;
  };
  EXPECT_EQ(region(0), (ImageBox{2, 43, 339, 451}));
  EXPECT_EQ(region(1), (ImageBox{21, 188, 310, 293}));
}

TEST(ResizedCrop, TakesTheCentreWhereNothingFits) {
  const auto region = [](ImageSize photo) {
    return DrawResizedCrop({0.9, 1, 3. / 4, 4. / 3}, kSample, photo, ImageStream(1, 2, 3)).region;
  };
  EXPECT_EQ(region({10, 1000}), (ImageBox{0, 493, 10, 13}));
  EXPECT_EQ(region({1000, 10}), (ImageBox{493, 0, 13, 10}));
  EXPECT_EQ(region({1, 1}), (ImageBox{0, 0, 1, 1}));
  // The values are valid, but no box drawn ever fits.
  EXPECT_EQ(DrawResizedCrop({1.5, 2, 0.9, 1.1}, kSample, {50, 50}, ImageStream(1, 2, 3)).region,
            (ImageBox{0, 0, 50, 50}));
}

TEST(CentreSample, IsTorchvisions) {
  const SampleGeometry centre = CentreSample({.sample = kSample, .shorter_side = 256}, kPhoto);
  EXPECT_EQ(centre,
            (SampleGeometry{
                .region = {0, 0, 375, 500}, .resized = {256, 341}, .window = {16, 58, 224, 224}}));
  EXPECT_EQ(CentreSample({.sample = kSample, .shorter_side = 256}, {500, 375}).resized,
            (ImageSize{341, 256}));
  EXPECT_EQ(CentreSample({.sample = {32, 32}}, {29, 40}).window, (ImageBox{-1, 4, 32, 32}));
  EXPECT_EQ(CentreSample({.sample = {32, 32}}, {35, 37}).window, (ImageBox{2, 2, 32, 32}));
}

TEST(PaddedCrop, ReachesEveryPlace) {
  const CropSettings settings{.sample = {32, 32}, .margin = 4, .padding = ImagePadding::kReflect};
  std::set<int64_t> tops, lefts;
  for (int i = 0; i < kDraws; ++i) {
    const SampleGeometry drawn = DrawPaddedCrop(settings, {32, 34}, ImageStream(1, 2, i));
    EXPECT_EQ(drawn, DrawPaddedCrop(settings, {32, 34}, ImageStream(1, 2, i)));
    EXPECT_EQ(drawn.region, (ImageBox{0, 0, 32, 34}));
    EXPECT_EQ(drawn.padding, ImagePadding::kReflect);
    tops.insert(drawn.window.top);
    lefts.insert(drawn.window.left);
  }
  EXPECT_EQ(tops.size(), 9u);
  EXPECT_EQ(lefts.size(), 11u);
  EXPECT_EQ(*tops.begin(), -4);
  EXPECT_EQ(*lefts.rbegin(), 6);
  // If the image is too small, the crop is centred.
  EXPECT_EQ(DrawPaddedCrop(settings, {20, 20}, ImageStream(1, 2, 3)).window,
            (ImageBox{-6, -6, 32, 32}));
}

TEST(Flip, IsOneHalf) {
  int flips = 0;
  for (int i = 0; i < kDraws; ++i) flips += DrawFlip(ImageStream(1, 2, i)) ? 1 : 0;
  EXPECT_NEAR(flips, 0.5 * kDraws, 100);
}

TEST(Erasing, BoxesAreSmallerThanTheSample) {
  int erased = 0;
  for (int i = 0; i < kDraws; ++i) {
    const ImageBox box = DrawErasing(kErasingBox, 0.25, kSample, ImageStream(1, 2, i));
    if (box.height == 0) continue;
    ++erased;
    ExpectInside(box, kSample);
    const double area = static_cast<double>(box.height * box.width) / (224 * 224);
    EXPECT_GE(area, 0.019);
    EXPECT_LE(area, 0.335);
  }
  EXPECT_NEAR(erased, 0.25 * kDraws, 100);
  EXPECT_EQ(DrawErasing(kErasingBox, 0, kSample, ImageStream(1, 2, 3)), ImageBox{});
  EXPECT_NE(DrawErasing(kErasingBox, 1, kSample, ImageStream(1, 2, 3)), ImageBox{});
  EXPECT_EQ(DrawErasing(kErasingBox, 1, {1, 1}, ImageStream(1, 2, 3)), ImageBox{});
}

TEST(Erasing, SetsTheBoxToZero) {
  std::vector<float> sample(4 * 5 * 3, 1);
  Erase({1, 2, 2, 3}, {4, 5}, 3, sample.data());
  for (int i = 0; i < 60; ++i) {
    const int row = i / 15, column = i / 3 % 5;
    EXPECT_EQ(sample[i], row >= 1 && row < 3 && column >= 2 ? 0 : 1);
  }
  Erase({}, {4, 5}, 3, sample.data());
}

TEST(Color, FactorsAreInRange) {
  double brightness = 0;
  for (int i = 0; i < kDraws; ++i) {
    const ColorFactors drawn = DrawColor({0.4, 0.2, 3}, ImageStream(1, 2, i));
    EXPECT_EQ(drawn, DrawColor({0.4, 0.2, 3}, ImageStream(1, 2, i)));
    EXPECT_NEAR(drawn.brightness, kColorUnit, 0.4 * kColorUnit + 1);
    EXPECT_NEAR(drawn.contrast, kColorUnit, 0.2 * kColorUnit + 1);
    EXPECT_GE(drawn.saturation, 0);
    EXPECT_LE(drawn.saturation, 4 * kColorUnit);
    brightness += 1.0 * drawn.brightness / kColorUnit / kDraws;
    // Disabling one choice does not change the others.
    EXPECT_EQ(DrawColor({0, 0.2, 0}, ImageStream(1, 2, i)).contrast, drawn.contrast);
  }
  EXPECT_NEAR(brightness, 1, 0.02);
  EXPECT_EQ(DrawColor({}, ImageStream(1, 2, 3)), ColorFactors{});
}

double GreyOf(const uint8_t* rgb) { return 0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2]; }

// Tests steps one at a time, because the roundings of all together are hard to separate.
TEST(Color, StepsAsPlainLoops) {
  const ImageSize size{12, 15};
  const int pixels = 12 * 15;
  const Bytes before = Photo(12, 15, 3);
  double mean = 0;
  for (int i = 0; i < pixels; ++i) mean += GreyOf(&before[3 * i]) / pixels;
  for (const double factor : {0.0, 0.3, 1.0, 1.7, 17.0}) {
    const auto unit = static_cast<int32_t>(std::lround(factor * kColorUnit));
    const std::array<ColorFactors, 3> steps{
        {{.brightness = unit}, {.contrast = unit}, {.saturation = unit}}};
    for (int step = 0; step < 3; ++step) {
      Bytes after = before;
      ApplyColor(steps[step], size, 3, after.data());
      for (int i = 0; i < 3 * pixels; ++i) {
        const double centre = step == 0   ? 0
                              : step == 1 ? std::round(mean)
                                          : std::round(GreyOf(&before[i / 3 * 3]));
        const double expected = std::clamp(centre + (before[i] - centre) * factor, 0.0, 255.0);
        ASSERT_NEAR(after[i], expected, 0.51) << factor << " " << step;
      }
    }
  }
}

TEST(Color, GreySamplesHaveNoSaturation) {
  const Bytes before = Photo(6, 7, 1);
  Bytes after = before;
  ApplyColor({.saturation = 0}, {6, 7}, 1, after.data());
  EXPECT_EQ(after, before);
  ApplyColor({.contrast = 0}, {6, 7}, 1, after.data());
  EXPECT_EQ(after, Bytes(42, after[0]));
}

TEST(Normalizer, IsMeanAndDeviation) {
  const std::array<double, 3> mean{0.485, 0.456, 0.406}, stddev{0.229, 0.224, 0.225};
  const Normalizer normalizer(mean, stddev);
  const Normalizer grey({mean.data(), 1}, {stddev.data(), 1});
  const Bytes sample = Photo(11, 13, 3);
  std::vector<float> out(sample.size()), out_grey(sample.size());
  normalizer.Apply(sample.data(), static_cast<int64_t>(sample.size()), out.data());
  grey.Apply(sample.data(), static_cast<int64_t>(sample.size()), out_grey.data());
  for (size_t i = 0; i < sample.size(); ++i) {
    EXPECT_NEAR(out[i], (sample[i] / 255.0 - mean[i % 3]) / stddev[i % 3], 1e-6);
    EXPECT_NEAR(out_grey[i], (sample[i] / 255.0 - mean[0]) / stddev[0], 1e-6);
  }
}

}  // namespace
}  // namespace muster
