// The numbers of a file of weights.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "common/tensors/safetensors_reader.h"

namespace muster {

// Visits all of a tensor of floats, block by block: it may be larger than the memory.
void ForEachFloatBlock(const SafetensorsReader& model, const StoredTensor& tensor,
                       const std::function<void(std::span<const float>)>& visit);

// How many of them are infinite or no number.
int64_t CountNonfinite(std::span<const float> values);

// "3 of conv1.weight": of each tensor with such numbers.
std::vector<std::string> NonfiniteTensors(const SafetensorsReader& model);

}  // namespace muster
