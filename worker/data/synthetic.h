// Images made up on the spot: a texture that tells the class, under noise. Nothing is read or
// kept, so any size and number of them costs nothing until it is asked for.
#pragma once

#include <cstdint>

#include "worker/data/dataset.h"

namespace muster {

// Each class has a texture for each channel: a tile of 8x8 pixels in blocks of 2x2, each block a
// value from [64, 192). An image is its class's tile repeated over the whole image from a random
// phase, with noise from [-48, 48) added to each pixel: a network finds the class by what is
// beside what, anywhere in the image. Sample i is of class i mod classes.
//
// Labels and pixels are pure functions of (seed, settings, set, index), to the bit. A training and
// a test set share their classes and no image.
Datasets MakeSynthetic(const config::SyntheticData& settings, uint64_t seed);

}  // namespace muster
