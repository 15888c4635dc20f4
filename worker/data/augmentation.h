// The random choices of preprocessing, as a pure function of seed, epoch and sample.
#pragma once

#include <cstdint>

#include "common/graph/shape.h"
#include "proto/config_fwd.h"

namespace muster {

// The changes to one image. The default changes nothing.
struct Augmentation {
  // The origin of the crop in the stored image; negative inside the padding.
  int64_t top = 0, left = 0;
  bool flip = false;     // mirror left-right
  float brightness = 0;  // added to every pixel
  float contrast = 1;    // x ← (x - m) * contrast + m, where m is the mean of the channel
  bool operator==(const Augmentation&) const = default;
};

// The shape of a preprocessed image. Throws Error(kUsage) if the crop is larger than `stored`.
Shape CropShape(const config::Preprocess& settings, const Shape& stored);

// Draws the changes for training. Every choice has its own random number, even if it is unused, so
// that enabling one choice does not change the others. Any thread.
//   block 0: row, column, flip, brightness    block 1: contrast
// With alternate_flip, flip is that of epoch 0, inverted in odd epochs.
Augmentation DrawAugmentation(const config::Preprocess& settings, const Shape& stored,
                              uint64_t seed, int64_t epoch, int64_t sample);

// Returns the centre crop, which is the only change for evaluation. If a margin is odd, its larger
// part is below or on the right.
Augmentation CentreCrop(const config::Preprocess& settings, const Shape& stored);

}  // namespace muster
