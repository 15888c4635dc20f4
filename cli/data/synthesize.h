// A procedural stand-in for CIFAR-10, for machines without a network, tests and demonstrations: one
// of ten shapes or textures on each image.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

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

// Writes dir/cifar-10-batches-bin in CIFAR-10's binary layout: five training files of
// `train_per_file` images, a test file of `test_count`, batches.meta.txt with the names of the ten
// classes, and synthetic.txt, which says how the set was made. The bytes are a pure function of
// the arguments. What is on the images: RenderSynthetic.
//
// The data set appears whole, by rename, or not at all. The same set already there: says so and
// returns. Anything else there: throws Error(kData) and touches nothing. Throws Error(kUsage) for
// counts below 1, Error(kFailure) where the disk fails.
void SynthesizeCifar10(const std::string& dir, uint64_t seed = 1, int64_t train_per_file = 10000,
                       int64_t test_count = 10000);

}  // namespace muster
