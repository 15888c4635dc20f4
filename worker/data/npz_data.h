// A data set of NumPy's arrays: data.format NPZ.
#pragma once

#include <memory>
#include <string>

#include "worker/data/dataset.h"

namespace muster {

// Reads the arrays that FindNpzSets finds in data.dir into memory. data.npz is filled in
// (ResolveFromFiles). Throws Error(kData) that names file, array, and what is wrong: shapes, types
// and classes that data.npz does not have, x and y of different lengths, numbers that are not
// finite, no arrays for training or for evaluations, damaged files.
//
// uint8 are planes, preprocessed as those of other formats. float32 are cropped, mirrored and
// normalized.
Datasets OpenNpz(const config::Data& data);
// As OpenEvaluatedSet; all of a file that has one set, without data.validation_fraction.
Datasets OpenNpzTest(const config::Data& data, uint64_t seed);
// The array x of a file; each sample's label is 0.
std::shared_ptr<const Dataset> OpenNpzSamples(const std::string& file, const config::Data& data);

}  // namespace muster
