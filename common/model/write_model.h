// Writes a trained network to a safetensors file that PyTorch's load_state_dict takes as it is.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "common/graph/graph.h"
#include "common/model/model_metadata.h"

namespace muster {

// `weights`: an arena of the graph's layout. Holds one tensor at a time besides. There whole or not
// at all; throws Error(kFailure). With `variables` (indices into Graph::variables()) only these.
void WriteModel(const std::string& path, const Graph& graph, std::span<const float> weights,
                int64_t updates, Metadata metadata, const std::vector<int>* variables = nullptr);

}  // namespace muster
