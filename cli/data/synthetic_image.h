// The images of the procedural data set: one of ten shapes or textures on each.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "worker/data/cifar10.h"

namespace muster {

inline constexpr std::array<const char*, kCifar10Classes> kSyntheticClasses = {
    "disk",       "ring",     "square",   "triangle",     "cross",
    "horizontal", "vertical", "diagonal", "checkerboard", "dots"};

// Images with numbers from here on are for testing, those below for training.
inline constexpr uint64_t kFirstSyntheticTestImage = uint64_t{1} << 32;

// Writes image `number` as a CIFAR-10 record. Every ten images (10 n … 10 n + 9) hold each class
// once, in random order.
//
// Only the form tells the class. Place, size, angle (within the class), colours, which of figure
// and ground is the lighter one, shading and noise are random. So a linear model, which sees only
// where how much of which colour is, learns little, and a convolutional network nearly all.
//
// A pure function of its arguments, to the bit: only + - * /, square root and floor are used, and
// the folder is compiled without contraction.
void RenderSynthetic(uint64_t seed, uint64_t number,
                     std::span<uint8_t, static_cast<size_t>(kCifar10RecordBytes)> record);

}  // namespace muster
