// Whether a file of weights is as it was written.
#pragma once

#include <string>

#include "common/tensors/safetensors_reader.h"

namespace muster {

// Reads all of it and compares what its metadata say of it: contents_hash, or, in a file that has
// none, the weights_hash of a run. A file of another program has neither, and passes. Throws
// Error(kData) that names the file, what was expected and what is there.
void RequireWhole(const SafetensorsReader& file);

// What is wrong with the file at `path`; "" if it is whole.
std::string DamageOf(const std::string& path);

}  // namespace muster
