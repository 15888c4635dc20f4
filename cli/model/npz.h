// NumPy's format of several arrays: a zip archive with a .npy file for each.
#pragma once

#include <string>

#include "common/tensors/safetensors_reader.h"

namespace muster {

// All tensors, by their names, as they are; BF16, which NumPy does not know, as float32. There
// whole or not at all. Throws Error: kData, kFailure.
void WriteNpz(const SafetensorsReader& model, const std::string& path);

}  // namespace muster
