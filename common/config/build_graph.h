// From the layers of a config to the network that every process sees.
#pragma once

#include "common/graph/graph.h"
#include "proto/config_fwd.h"

namespace muster {

// Infers all shapes. Throws Error(kUsage) that names the layer, what was expected and what is
// there. `input` is the shape of a preprocessed sample.
Graph BuildGraph(const config::Model& model, const Shape& input);

}  // namespace muster
