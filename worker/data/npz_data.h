// Data sets of NumPy arrays: data.format NPZ.
#pragma once

#include <memory>
#include <string>

#include "worker/data/dataset.h"

namespace muster {

// Reads the arrays that FindNpzSets finds in data.dir into memory. data.npz must be filled in
// (ResolveFromFiles). Throws Error(kData) with the file, the array and the fault: shapes, types or
// classes that contradict data.npz, x and y of different lengths, non-finite numbers, no arrays for
// training or evaluation, damaged files.
//
// uint8 arrays are planes, preprocessed like those of other formats. float32 arrays are cropped,
// mirrored and normalized.
Datasets OpenNpz(const config::Data& data);
// Like OpenEvaluatedSet. If there is only a training set and validation_fraction is 0, all of it is
// evaluated.
Datasets OpenNpzTest(const config::Data& data, uint64_t seed);
// Opens the array x of a file. The label of each sample is 0.
std::shared_ptr<const Dataset> OpenNpzSamples(const std::string& file, const config::Data& data);

}  // namespace muster
