// data.validation_fraction: a share of the training set becomes the validation set.
#pragma once

#include <cstdint>
#include <string_view>

#include "worker/data/dataset.h"

namespace muster {

// Whether a sample of this name is held back. Nothing else decides, so that more samples move no
// other.
bool IsHeldBack(std::string_view name, double fraction, uint64_t seed);

// Divides sets.train; a sample's name is its number. Each part numbers its samples anew, in their
// order: where they are stored as planes, the training is that of a training set without the
// others. Throws Error(kData) where a part would be empty.
void HoldBack(double fraction, uint64_t seed, Datasets& sets);

}  // namespace muster
