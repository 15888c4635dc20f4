// From the layers of a config to the network that every process sees.
#pragma once

#include <string>

#include "common/graph/graph.h"
#include "proto/config_fwd.h"

namespace muster {

// Infers all shapes. Throws Error(kUsage) that names the layer, what was expected and what is
// there. `input` is the shape of a preprocessed sample.
Graph BuildGraph(const config::Model& model, const Shape& input);

// What is wrong with the last layer, which must be the loss, or "".
std::string LossTrouble(const config::Model& model);

}  // namespace muster
