// data.validation_fraction: moves a share of the training set to the validation set.
#pragma once

#include <cstdint>
#include <string_view>

#include "worker/data/dataset.h"

namespace muster {

// Whether a sample with this name belongs to the validation set. Depends only on the arguments, so
// that adding samples does not move others.
bool IsHeldBack(std::string_view name, double fraction, uint64_t seed);

// Splits sets.train; a sample's name is its number. Each part renumbers its samples in order: if
// they are stored as planes, training gives the same result as with a training set that has only
// these samples. Throws Error(kData) if a part would be empty.
void HoldBack(double fraction, uint64_t seed, Datasets& sets);

}  // namespace muster
