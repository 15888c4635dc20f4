// The random choices of preprocessing, as a pure function of seed, epoch and sample.
#pragma once

#include <cstdint>

#include "common/graph/shape.h"
#include "proto/config_fwd.h"

namespace muster {

// What is done to one image. The default changes nothing.
struct Augmentation {
  // Where the crop begins in the stored image; negative inside the padding.
  int64_t top = 0, left = 0;
  bool flip = false;     // mirror left-right
  float brightness = 0;  // added to every pixel
  float contrast = 1;    // x ← (x - m) * contrast + m, m being the mean of the channel
  bool operator==(const Augmentation&) const = default;
};

// The shape of a preprocessed image. Throws Error(kUsage) where the crop is larger than `stored`.
Shape CropShape(const config::Preprocess& settings, const Shape& stored);

// Training. Every choice has a random number of its own, whether or not it is used, so that
// switching one on or off leaves the others as they were. Any thread.
//   block 0: row, column, flip, brightness    block 1: contrast
Augmentation DrawAugmentation(const config::Preprocess& settings, const Shape& stored,
                              uint64_t seed, int64_t epoch, int64_t sample);

// Evaluation: the centre crop, nothing else. An odd margin puts the larger part below and right.
Augmentation CentreCrop(const config::Preprocess& settings, const Shape& stored);

}  // namespace muster
