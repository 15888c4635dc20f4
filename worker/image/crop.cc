#include "worker/image/crop.h"

#include <algorithm>
#include <cmath>

#include "common/base/error.h"

namespace muster {
namespace {

constexpr uint32_t kAttempts = 10;
constexpr uint32_t kFlipBlock = 10, kEraseBlock = 11, kErasingBlocks = 12;

// Maps all 32 bits to [0, 1).
double Uniform(uint32_t bits) { return bits * 0x1p-32; }

double Between(double low, double high, uint32_t bits) {
  return low + (high - low) * Uniform(bits);
}

// Returns the first random box that is no larger than `most` in either direction, placed anywhere
// in `whole`, or an empty box if there is none.
ImageBox DrawBox(const RandomBox& settings, ImageSize whole, ImageSize most,
                 const RandomStream& stream, uint32_t first_block) {
  const double all = static_cast<double>(whole.height) * static_cast<double>(whole.width);
  const double log_min = std::log(settings.ratio_min), log_max = std::log(settings.ratio_max);
  for (uint32_t attempt = 0; attempt < kAttempts; ++attempt) {
    const auto bits = stream.Block(first_block + attempt);
    const double area = all * Between(settings.scale_min, settings.scale_max, bits[0]);
    const double ratio = std::exp(Between(log_min, log_max, bits[1]));
    const int64_t width = std::llround(std::sqrt(area * ratio));
    const int64_t height = std::llround(std::sqrt(area / ratio));
    if (width < 1 || width > most.width || height < 1 || height > most.height) continue;
    return {.top = PickBelow(bits[2], whole.height - height + 1),
            .left = PickBelow(bits[3], whole.width - width + 1),
            .height = height,
            .width = width};
  }
  return {};
}

ImageBox Whole(ImageSize size) { return {0, 0, size.height, size.width}; }

// Returns the size with a shorter side of `side`. The other side is in proportion, rounded down.
ImageSize WithShorterSide(ImageSize photo, int64_t side) {
  if (side == 0) return photo;
  if (photo.width <= photo.height) return {side * photo.height / photo.width, side};
  return {side, side * photo.width / photo.height};
}

// Returns the offset of torchvision's CenterCrop: half of the margin, rounded to even; for a
// negative margin, half of the missing size, rounded down.
int64_t CentreOf(int64_t margin) {
  if (margin < 0) return -(-margin / 2);
  return margin / 2 + (margin % 4 == 3 ? 1 : 0);
}

}  // namespace

RandomStream ImageStream(uint64_t seed, int64_t epoch, int64_t sample) {
  return {seed, RandomPurpose::kAugment, /*place=*/0, static_cast<uint32_t>(epoch),
          static_cast<uint64_t>(sample)};
}

SampleGeometry DrawResizedCrop(const RandomBox& settings, ImageSize sample, ImageSize photo,
                               const RandomStream& stream) {
  SampleGeometry geometry{.resized = sample, .window = Whole(sample)};
  geometry.region = DrawBox(settings, photo, photo, stream, 0);
  if (geometry.region.height > 0) return geometry;
  const auto width = static_cast<double>(photo.width), height = static_cast<double>(photo.height);
  ImageSize size = photo;
  if (width / height < settings.ratio_min) {
    size.height = std::clamp<int64_t>(std::llround(width / settings.ratio_min), 1, photo.height);
  } else if (width / height > settings.ratio_max) {
    size.width = std::clamp<int64_t>(std::llround(height * settings.ratio_max), 1, photo.width);
  }
  geometry.region = {(photo.height - size.height) / 2, (photo.width - size.width) / 2, size.height,
                     size.width};
  return geometry;
}

SampleGeometry CentreSample(const CropSettings& settings, ImageSize photo) {
  const ImageSize resized = WithShorterSide(photo, settings.shorter_side);
  const ImageSize& sample = settings.sample;
  return {.region = Whole(photo),
          .resized = resized,
          .window = {CentreOf(resized.height - sample.height),
                     CentreOf(resized.width - sample.width), sample.height, sample.width},
          .padding = settings.padding};
}

SampleGeometry DrawPaddedCrop(const CropSettings& settings, ImageSize photo,
                              const RandomStream& stream) {
  SampleGeometry geometry = CentreSample(settings, photo);
  const auto bits = stream.Block(0);
  const int64_t rows = geometry.resized.height + 2 * settings.margin - settings.sample.height;
  const int64_t columns = geometry.resized.width + 2 * settings.margin - settings.sample.width;
  if (rows >= 0) geometry.window.top = PickBelow(bits[2], rows + 1) - settings.margin;
  if (columns >= 0) geometry.window.left = PickBelow(bits[3], columns + 1) - settings.margin;
  return geometry;
}

bool DrawFlip(const RandomStream& stream) { return (stream.Block(kFlipBlock)[0] >> 31) != 0; }

ImageBox DrawErasing(const RandomBox& settings, double probability, ImageSize sample,
                     const RandomStream& stream) {
  if (Uniform(stream.Block(kEraseBlock)[0]) >= probability) return {};
  return DrawBox(settings, sample, {sample.height - 1, sample.width - 1}, stream, kErasingBlocks);
}

}  // namespace muster
