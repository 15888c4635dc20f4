// Writes a trained network as an ONNX file, for inference on images [batch, channels, height,
// width] with any batch size.
#pragma once

#include <string>

#include "common/graph/graph.h"
#include "common/tensors/safetensors_reader.h"

namespace muster {

// Writes the network with the weights and metadata of `model`. The weights must match the network
// exactly. The file appears atomically. Throws Error: kData; kFailure, for example if the file
// would be larger than 2 GiB, the limit of ONNX.
void WriteOnnx(const SafetensorsReader& model, const Graph& graph, const std::string& path);

}  // namespace muster
