// Synthetic images: a texture that identifies the class, with noise. Images are generated on demand
// and not stored, so their size and number cost no memory.
#pragma once

#include <cstdint>

#include "worker/data/dataset.h"

namespace muster {

// Each class has a texture for each channel: a tile of 8x8 pixels in blocks of 2x2, each block with
// a value from [64, 192). An image is its class's tile repeated over the whole image, starting at a
// random phase, with noise from [-48, 48) added to each pixel: a network recognizes the class by
// local patterns anywhere in the image. The class of sample i is i mod classes.
//
// Labels and pixels are bit-exact pure functions of (seed, settings, set, index). The training and
// test sets share the classes but no images.
Datasets MakeSynthetic(const config::SyntheticData& settings, uint64_t seed);

}  // namespace muster
