// Synthetic images: a texture that identifies the class, with noise. Images are generated on demand
// and not stored, so size and number of them cost nothing.
#pragma once

#include <cstdint>

#include "worker/data/dataset.h"

namespace muster {

// Each class has a texture for each channel: a tile of 8x8 pixels in blocks of 2x2, each block with
// a value from [64, 192). An image is its class's tile repeated over the whole image from a random
// phase, with noise from [-48, 48) added to each pixel: a network recognizes the class by local
// patterns anywhere in the image. The class of sample i is i mod classes.
//
// Labels and pixels are bit-exact pure functions of (seed, settings, set, index). Training and test
// set share the classes but no image.
Datasets MakeSynthetic(const config::SyntheticData& settings, uint64_t seed);

}  // namespace muster
