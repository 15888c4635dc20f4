// Writes NumPy's format for several arrays: a zip archive with a .npy file for each.
#pragma once

#include <string>

#include "common/tensors/safetensors_reader.h"

namespace muster {

// Writes all tensors under their names, unchanged, except that BF16, which NumPy lacks, becomes
// float32. The file appears atomically. Throws Error: kData, kFailure.
void WriteNpz(const SafetensorsReader& model, const std::string& path);

}  // namespace muster
