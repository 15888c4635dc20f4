// Initial values of variables: a pure function of the seed and the variable's index in the layout.
#pragma once

#include <cstdint>
#include <span>

#include "common/graph/variable_layout.h"

namespace muster {

// Fills `weights` (layout.arena_floats() floats). Padding between variables is set to zero.
void InitializeWeights(const VariableLayout& layout, uint64_t seed, std::span<float> weights);

}  // namespace muster
