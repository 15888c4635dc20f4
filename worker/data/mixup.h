// mixup (data.preprocess.mixup_alpha): each sample of a slice becomes share x + (1 - share) x',
// where x' is the sample before it in the slice; before the first one is the last.
#pragma once

#include <cstdint>

namespace muster {

// The share of one slice: drawn from Beta(alpha, alpha), and the larger part of both. That leaves
// the distribution of the mixed samples as it is, since their order is random, and makes the
// sample's own label, by which accuracy counts, the one that counts more.
float MixupShare(double alpha, uint64_t seed, int64_t step, int64_t slice);

// In place; an image has so many elements.
void MixImages(float share, int64_t count, int64_t elements, float* images);

}  // namespace muster
