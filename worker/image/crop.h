// Chooses the part of a photo that becomes a sample, and its size. The random choices are pure
// functions of ImageStream's arguments.
#pragma once

#include <cstdint>

#include "common/base/random.h"
#include "worker/image/image.h"

namespace muster {

enum class ImagePadding {
  kZero,     // black
  kReflect,  // mirrored at the outermost pixel, without repeating it
};

// The region of the photo as shown is resized; a window of the result is the sample.
struct SampleGeometry {
  ImageBox region;    // in the photo's pixels; inside the photo
  ImageSize resized;  // the size of the region after resizing
  ImageBox window;    // in the resized region's pixels; padded outside of it
  ImagePadding padding = ImagePadding::kZero;
  bool flip = false;  // mirror the window left-right at the end
  bool operator==(const SampleGeometry&) const = default;
};

// The random numbers of one sample. Every choice has its own numbers, even if they are unused, so
// that enabling one choice does not change the others:
//   blocks 0 to 9: attempts of DrawResizedCrop: area, ratio, row, column
//   block 0 for DrawPaddedCrop: words 2 and 3: row, column
//   block 10: flip, brightness, contrast, saturation    block 11: whether to erase
//   blocks 12 to 21: attempts of DrawErasing: area, ratio, row, column
RandomStream ImageStream(uint64_t seed, int64_t epoch, int64_t sample);

// Returns 0 … choices-1. The bias of multiply-shift is below choices / 2^32.
inline int64_t PickBelow(uint32_t bits, int64_t choices) {
  return static_cast<int64_t>((static_cast<uint64_t>(bits) * static_cast<uint64_t>(choices)) >> 32);
}

// A box of random size: area / (area of the whole) is uniform within `scale`, and the logarithm of
// width / height is uniform within `ratio`.
struct RandomBox {
  double scale_min, scale_max;
  double ratio_min, ratio_max;
};
inline constexpr RandomBox kResizedCropBox{0.08, 1, 3.0 / 4, 4.0 / 3};

// torchvision's RandomResizedCrop: the first of ten random boxes that fits into the photo, else the
// largest centred box with a ratio in range. It is resized to `sample`.
SampleGeometry DrawResizedCrop(const RandomBox& settings, ImageSize sample, ImageSize photo,
                               const RandomStream& stream);

struct CropSettings {
  ImageSize sample;
  int64_t shorter_side = 0;  // resize the shorter side to this many pixels first; 0: keep the size
  int64_t margin = 0;        // then add this padding; used only by DrawPaddedCrop
  ImagePadding padding = ImagePadding::kZero;
};

// torchvision's Resize, Pad and RandomCrop. A photo that is still too small is centred.
SampleGeometry DrawPaddedCrop(const CropSettings& settings, ImageSize photo,
                              const RandomStream& stream);
// torchvision's Resize and CenterCrop, for evaluation.
SampleGeometry CentreSample(const CropSettings& settings, ImageSize photo);

// Returns true for half of the samples.
bool DrawFlip(const RandomStream& stream);

// torchvision's RandomErasing: the first of ten random boxes that is smaller than the sample in
// both directions. Returns an empty box with probability 1 - `probability`, or if no box is
// smaller.
inline constexpr RandomBox kErasingBox{0.02, 0.33, 0.3, 3.3};
ImageBox DrawErasing(const RandomBox& settings, double probability, ImageSize sample,
                     const RandomStream& stream);

}  // namespace muster
