#include "cli/model/onnx_export.h"

#include <climits>
#include <vector>

#include "cli/model/onnx_graph.h"
#include "common/base/atomic_file.h"
#include "common/base/error.h"
#include "common/model/load_weights.h"
#include "common/model/torch_tensors.h"
#include "common/tensors/contents_hash.h"
#include "proto/onnx.pb.h"

namespace muster {
namespace {

constexpr uint64_t kMostBytes = INT_MAX;  // of a protobuf message

void AddWeights(const SafetensorsReader& model, const Graph& graph, onnx::Network& network) {
  std::vector<float> values;
  const TorchTensors torch(graph);
  for (const TorchTensor& tensor : torch.tensors()) {
    values.resize(tensor.count());
    model.ReadFloats(*model.header().Find(tensor.name()), values);
    onnx::Tensor& initializer = *network.add_initializer();
    initializer.set_name(tensor.name());
    initializer.set_data_type(onnx::Tensor::FLOAT);
    for (const int64_t size : tensor.shape()) initializer.add_dims(size);
    initializer.set_raw_data(values.data(), values.size() * sizeof(float));
  }
}

}  // namespace

void WriteOnnx(const SafetensorsReader& model, const Graph& graph, const std::string& path) {
  (void)MatchWeights(model, graph, {});
  const auto too_large = [&] {
    throw Error(ExitCode::kFailure,
                "{}: an ONNX file holds at most 2 GiB, and the weights are {} bytes; export them "
                "as safetensors",
                path, 4 * graph.layout().parameter_count());
  };
  if (4 * static_cast<uint64_t>(graph.layout().parameter_count()) > kMostBytes) too_large();
  onnx::Model onnx;
  onnx.set_ir_version(kOnnxIrVersion);
  onnx.set_producer_name("muster");
  onnx.add_opset_import()->set_version(kOnnxOpset);
  for (const auto& [key, value] : model.header().metadata) {
    if (key == "format" || key == kContentsHash) continue;  // of safetensors
    onnx::Property& property = *onnx.add_metadata_props();
    property.set_key(key);
    property.set_value(value);
    if (key == "muster_version") onnx.set_producer_version(value);
  }
  onnx::Network& network = *onnx.mutable_graph();
  const auto name = model.header().metadata.find("model");
  network.set_name(name == model.header().metadata.end() || name->second.empty() ? "network"
                                                                                 : name->second);
  AddOnnxNodes(graph, network);
  AddWeights(model, graph, network);
  std::string bytes;
  if (onnx.ByteSizeLong() > kMostBytes || !onnx.SerializeToString(&bytes)) too_large();
  WriteFileAtomically(path, bytes);
}

}  // namespace muster
