// Builds the network graph from the layers of a config.
#pragma once

#include <string>

#include "common/graph/graph.h"
#include "proto/config_fwd.h"

namespace muster {

// Infers all shapes. `input` is the shape of a preprocessed sample. Throws Error(kUsage) that names
// the layer, the expected value and the actual value.
Graph BuildGraph(const config::Model& model, const Shape& input);

// Describes what is wrong if the last layer is not a loss; "" if it is.
std::string LossTrouble(const config::Model& model);

}  // namespace muster
