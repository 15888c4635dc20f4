// Writes a trained network to a safetensors file for PyTorch's load_state_dict.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "common/graph/graph.h"
#include "common/model/model_metadata.h"

namespace muster {

// `weights` is a buffer with the graph's layout. Needs memory for one additional tensor. Writes the
// file atomically. Throws Error(kFailure). With `variables` (indices into Graph::variables()),
// writes only these variables.
void WriteModel(const std::string& path, const Graph& graph, std::span<const float> weights,
                int64_t updates, Metadata metadata, const std::vector<int>* variables = nullptr);

}  // namespace muster
