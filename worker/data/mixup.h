// mixup (data.preprocess.mixup_alpha): each sample x of a slice becomes share x + (1 - share) x',
// where x' is the sample before it in the slice; the first sample uses the last.
#pragma once

#include <cstdint>

namespace muster {

// Returns the share of one slice. It is drawn from Beta(alpha, alpha), then replaced by 1 - share
// if that is larger. This does not change the distribution of the mixed samples, because their
// order is random. It gives the larger weight to the sample's own label, which accuracy uses.
float MixupShare(double alpha, uint64_t seed, int64_t step, int64_t slice);

// Mixes in place. Each image has `elements` elements.
void MixImages(float share, int64_t count, int64_t elements, float* images);

}  // namespace muster
