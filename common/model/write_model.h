// Writes a trained network to a safetensors file for PyTorch's load_state_dict.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "common/graph/graph.h"
#include "common/model/model_metadata.h"

namespace muster {

// `weights`: a buffer with the graph's layout. Needs memory for one more tensor. Writes atomically;
// throws Error(kFailure). With `variables` (indices into Graph::variables()) writes only these.
void WriteModel(const std::string& path, const Graph& graph, std::span<const float> weights,
                int64_t updates, Metadata metadata, const std::vector<int>* variables = nullptr);

}  // namespace muster
