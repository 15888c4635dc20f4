// The steps after a sample has been cut out and resized: colour in 8 bits, then normalisation to
// float, then erasing. Colour is computed in integers, and normalisation has no sum that a compiler
// could fuse with a product, so the bits depend neither on the compiler nor on the processor.
#pragma once

#include <cstdint>
#include <span>

#include "common/base/random.h"
#include "worker/image/crop.h"
#include "worker/image/image.h"

namespace muster {

// Factors, in 1 / kColorUnit.
inline constexpr int32_t kColorUnit = 1 << 16;
struct ColorFactors {
  int32_t brightness = kColorUnit, contrast = kColorUnit, saturation = kColorUnit;
  bool operator==(const ColorFactors&) const = default;
};

// How far each factor may be from 1, from 0 to 16. No factor is negative.
struct ColorJitter {
  double brightness = 0, contrast = 0, saturation = 0;
};
ColorFactors DrawColor(const ColorJitter& settings, const RandomStream& stream);

// Pillow's enhancers, as torchvision's ColorJitter uses them, always in this order. Each step
// rounds and limits to 0 … 255:
//   brightness: x ← x f
//   contrast:   x ← m + (x - m) f, m being the mean grey of the sample, rounded
//   saturation: x ← g + (x - g) f, g being the pixel's grey. Nothing changes in a grey sample.
void ApplyColor(const ColorFactors& factors, ImageSize size, int64_t channels, uint8_t* sample);

// x ← (x / 255 - mean) / stddev for each channel, as (x - 255 mean) times 1 / (255 stddev) in
// float.
class Normalizer {
 public:
  // One mean and one stddev, greater than 0, for each channel. 1 or 3 channels.
  Normalizer(std::span<const double> mean, std::span<const double> stddev);

  // `count`: of values, over all channels. [row][column][channel] in both.
  void Apply(const uint8_t* sample, int64_t count, float* out) const;

 private:
  // The constants of 16 pixels in a row, so that the compiler computes in vectors.
  static constexpr int64_t kBlock = 48;
  float centre_[kBlock], scale_[kBlock];
};

// Sets the box to 0, the mean colour.
void Erase(const ImageBox& box, ImageSize size, int64_t channels, float* sample);

}  // namespace muster
