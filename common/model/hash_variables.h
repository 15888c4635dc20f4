// Computes a hash that identifies a set of weights.
#pragma once

#include <cstdint>
#include <span>

#include "common/graph/variable_layout.h"

namespace muster {

// XXH3-64 of a parameter buffer, without the padding between variables.
uint64_t HashVariables(const VariableLayout& layout, std::span<const float> arena);

}  // namespace muster
