// A network as TensorBoard draws it.
#pragma once

#include "common/graph/graph.h"
#include "proto/tensorboard.pb.h"

namespace muster {

// A node for the image, one for each layer, and one for each variable, inside its layer.
tensorboard::GraphDef GraphDefOf(const Graph& graph);

}  // namespace muster
