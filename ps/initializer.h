// Initial values of variables: a pure function of the seed and the variable's place in the graph.
#pragma once

#include <cstdint>
#include <span>

#include "common/graph.h"

namespace muster {

// Fills `weights` (graph.arena_floats() floats). Padding between variables becomes zero.
void InitializeWeights(const Graph& graph, uint64_t seed, std::span<float> weights);

}  // namespace muster
