// Makes a procedural stand-in for CIFAR-10, for machines without a network, tests and
// demonstrations. Each image shows one of ten shapes or textures.
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

// The number of the first test image; lower numbers are training images.
inline constexpr uint64_t kFirstSyntheticTestImage = uint64_t{1} << 32;

// Writes image `number` as a CIFAR-10 record. Every ten images (10 n … 10 n + 9) contain each class
// once, in random order.
//
// Only the shape determines the class. Position, size, angle (within the class), colors, contrast,
// shading and noise are random. A linear model therefore learns little, and a convolutional network
// nearly everything.
//
// The record depends only on the arguments, bit for bit: it is computed with + - * /, square root
// and floor, and synthesize.cc is compiled without contraction.
void RenderSynthetic(uint64_t seed, uint64_t number,
                     std::span<uint8_t, static_cast<size_t>(kCifar10RecordBytes)> record);

// Writes dir/cifar-10-batches-bin in CIFAR-10's binary layout: five training files of
// `train_per_file` images, a test file of `test_count`, batches.meta.txt with the names of the ten
// classes, and synthetic.txt, which records the arguments. The bytes depend only on the arguments.
// For the images see RenderSynthetic.
//
// The data set appears atomically. If the same set exists, reports that and returns. If anything
// else is there, throws Error(kData) and changes nothing. Throws Error(kUsage) if a count is below
// 1, and Error(kFailure) if the disk fails.
void SynthesizeCifar10(const std::string& dir, uint64_t seed = 1, int64_t train_per_file = 10000,
                       int64_t test_count = 10000);

}  // namespace muster
