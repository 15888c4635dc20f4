// The steps after a sample has been cut out and resized: colour in 8 bits, normalization to float,
// erasing. Colour is computed in integers, and normalization has no sum that a compiler could fuse
// with a product, so the bits depend neither on the compiler nor on the processor.
#pragma once

#include <cstdint>
#include <span>

#include "common/base/random.h"
#include "common/graph/pixel_scale.h"
#include "worker/image/crop.h"
#include "worker/image/image.h"

namespace muster {

// Factors in units of 1 / kColorUnit.
inline constexpr int32_t kColorUnit = 1 << 16;
struct ColorFactors {
  int32_t brightness = kColorUnit, contrast = kColorUnit, saturation = kColorUnit;
  bool operator==(const ColorFactors&) const = default;
};

// The maximum distance of each factor from 1, between 0 and 16. No factor is negative.
struct ColorJitter {
  double brightness = 0, contrast = 0, saturation = 0;
};
ColorFactors DrawColor(const ColorJitter& settings, const RandomStream& stream);

// Applies Pillow's enhancers, as torchvision's ColorJitter does, but always in this order. Each
// step rounds and clamps to 0 … 255:
//   brightness: x ← x f
//   contrast:   x ← m + (x - m) f, where m is the rounded mean grey of the sample
//   saturation: x ← g + (x - g) f, where g is the pixel's grey; no effect on a grey sample
void ApplyColor(const ColorFactors& factors, ImageSize size, int64_t channels, uint8_t* sample);

// x ← (x / 255 - mean) / stddev for each channel, computed as (x - 255 mean) times 1 / (255 stddev)
// in float.
class Normalizer {
 public:
  // One mean and one stddev, greater than 0, for each channel. 1 or 3 channels.
  Normalizer(std::span<const double> mean, std::span<const double> stddev);

  // `count` is the number of values in all channels. Input and output are [row][column][channel].
  void Apply(const uint8_t* sample, int64_t count, float* out) const;
  const PixelScale& scale() const { return scale_; }

 private:
  PixelScale scale_;
  // The constants of 16 adjacent pixels, so that the compiler can vectorize.
  static constexpr int64_t kBlock = 48;
  float centres_[kBlock], scales_[kBlock];
};

// Sets the box to 0, the mean colour.
void Erase(const ImageBox& box, ImageSize size, int64_t channels, float* sample);

}  // namespace muster
