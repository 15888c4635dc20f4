// A procedural stand-in for CIFAR-10, for machines without a network, tests and demonstrations.
#pragma once

#include <cstdint>
#include <string>

namespace muster {

// Writes dir/cifar-10-batches-bin in CIFAR-10's binary layout: five training files of
// `train_per_file` images, a test file of `test_count`, batches.meta.txt with the names of the ten
// classes, and synthetic.txt, which says how the set was made. The bytes are a pure function of
// the arguments. What is on the images: cli/data/synthetic_image.h.
//
// The data set appears whole, by rename, or not at all. The same set already there: says so and
// returns. Anything else there: throws Error(kData) and touches nothing. Throws Error(kUsage) for
// counts below 1, Error(kFailure) where the disk fails.
void SynthesizeCifar10(const std::string& dir, uint64_t seed = 1, int64_t train_per_file = 10000,
                       int64_t test_count = 10000);

}  // namespace muster
