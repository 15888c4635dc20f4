// Chooses which part of a photo becomes a sample, and at which size. The random choices are pure
// functions of ImageStream's arguments.
#pragma once

#include <cstdint>

#include "common/base/random.h"
#include "worker/image/image.h"

namespace muster {

enum class ImagePadding {
  kZero,     // black
  kReflect,  // mirrored at the outermost pixel, which is not repeated
};

// A region of the photo as shown is resized, and a window of the result is the sample.
struct SampleGeometry {
  ImageBox region;    // in the photo's pixels; inside of the photo
  ImageSize resized;  // what the region becomes
  ImageBox window;    // in the resized region's pixels; beyond it there is padding
  ImagePadding padding = ImagePadding::kZero;
  bool flip = false;  // then mirror the window left-right
  bool operator==(const SampleGeometry&) const = default;
};

// The random numbers of one sample. Every choice has numbers of its own, whether or not it is used,
// so that switching one on or off leaves the others as they were:
//   blocks 0 to 9: attempts of DrawResizedCrop: area, ratio, row, column
//   block 0 for DrawPaddedCrop: words 2 and 3: row, column
//   block 10: flip, brightness, contrast, saturation    block 11: whether to erase
//   blocks 12 to 21: attempts of DrawErasing: area, ratio, row, column
RandomStream ImageStream(uint64_t seed, int64_t epoch, int64_t sample);

// 0 … choices-1. The bias of multiply-shift is below choices / 2^32.
inline int64_t PickBelow(uint32_t bits, int64_t choices) {
  return static_cast<int64_t>((static_cast<uint64_t>(bits) * static_cast<uint64_t>(choices)) >> 32);
}

// A box of random size: its area is `scale` times the whole, its width divided by its height is
// `ratio`. The area is uniform, the ratio's logarithm is.
struct RandomBox {
  double scale_min, scale_max;
  double ratio_min, ratio_max;
};
inline constexpr RandomBox kResizedCropBox{0.08, 1, 3.0 / 4, 4.0 / 3};

// torchvision's RandomResizedCrop: the first of ten random boxes that fits into the photo, else the
// largest centred box with a ratio in range. It becomes `sample` pixels.
SampleGeometry DrawResizedCrop(const RandomBox& settings, ImageSize sample, ImageSize photo,
                               const RandomStream& stream);

struct CropSettings {
  ImageSize sample;
  int64_t shorter_side = 0;  // first the shorter side becomes this many pixels; 0: keep the size
  int64_t margin = 0;        // then padding is put around; DrawPaddedCrop alone
  ImagePadding padding = ImagePadding::kZero;
};

// torchvision's Resize, Pad and RandomCrop. Where the photo is too small even so, it is centred.
SampleGeometry DrawPaddedCrop(const CropSettings& settings, ImageSize photo,
                              const RandomStream& stream);
// torchvision's Resize and CenterCrop, for evaluation.
SampleGeometry CentreSample(const CropSettings& settings, ImageSize photo);

// True for one half of the samples.
bool DrawFlip(const RandomStream& stream);

// The first of ten random boxes that is smaller than the sample in both directions. An empty box
// if none is, or with the probability 1 - `probability`. torchvision's RandomErasing.
inline constexpr RandomBox kErasingBox{0.02, 0.33, 0.3, 3.3};
ImageBox DrawErasing(const RandomBox& settings, double probability, ImageSize sample,
                     const RandomStream& stream);

}  // namespace muster
