// `muster inspect` of a file of weights.
#pragma once

#include <string>
#include <vector>

#include "common/tensors/safetensors_reader.h"

namespace muster {

// Variables with types, shapes, norms and extremes, what is not finite, and what the file says of
// itself, below its name as a person knows it. Reads all of it, a tensor at a time. Throws
// Error(kData).
std::vector<std::string> InspectModelLines(const SafetensorsReader& model,
                                           const std::string& shown);

// The config that the file holds, as text. Throws Error(kUsage) if it holds none.
std::string ConfigTextOf(const SafetensorsReader& model);

}  // namespace muster
