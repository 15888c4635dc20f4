// A trained network as an ONNX file: inference, images as [batch, channels, height, width], the
// batch of any size.
#pragma once

#include <string>

#include "common/graph/graph.h"
#include "common/tensors/safetensors_reader.h"

namespace muster {

// The network with the file's weights, which must be all of them and no others, and its metadata.
// There whole or not at all. Throws Error: kData; kFailure, also where it would be larger than 2
// GiB, which ONNX does not allow in one file.
void WriteOnnx(const SafetensorsReader& model, const Graph& graph, const std::string& path);

}  // namespace muster
