// A network as ONNX's operators: inference, images as [batch, channels, height, width], the batch
// of any size.
#pragma once

#include "common/graph/graph.h"

namespace muster::onnx {
class Network;
}

namespace muster {

// Nodes, the input "images" and the output "logits", [batch, classes]. Weights are named as in
// torch_tensors.h and are to be added as initializers of these names; constants of the operators
// are there. Dropout is left out; the loss ends as logits.
void AddOnnxNodes(const Graph& graph, onnx::Network& network);

// The operators and the format that are used.
inline constexpr int kOnnxOpset = 13;
inline constexpr int kOnnxIrVersion = 7;

}  // namespace muster
