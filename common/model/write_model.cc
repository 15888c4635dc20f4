#include "common/model/write_model.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "common/model/torch_tensors.h"
#include "common/tensors/safetensors_writer.h"

namespace muster {

void WriteModel(const std::string& path, const Graph& graph, std::span<const float> weights,
                int64_t updates, Metadata metadata, const std::vector<int>* variables) {
  const TorchTensors torch(graph);
  std::vector<StoredTensor> stored;
  std::map<std::string, const TorchTensor*> by_name;
  for (const TorchTensor& tensor : torch.tensors()) {
    if (variables != nullptr && std::ranges::count(*variables, tensor.variable()) == 0) continue;
    stored.push_back({.name = tensor.name(), .shape = tensor.shape()});
    by_name[tensor.name()] = &tensor;
  }
  for (const std::string& counter : torch.counters()) {
    stored.push_back({.name = counter, .type = TensorType::kI64});
  }
  SafetensorsWriter writer(path, LayOutSafetensors(std::move(stored), std::move(metadata)));
  std::vector<float> values;
  for (const StoredTensor& one : writer.header().tensors) {
    const auto found = by_name.find(one.name);
    if (found == by_name.end()) {
      writer.Write(std::as_bytes(std::span(&updates, 1)));
      continue;
    }
    const TorchTensor& tensor = *found->second;
    const Variable& variable = graph.variables()[static_cast<size_t>(tensor.variable())];
    const std::span<const float> ours = weights.subspan(variable.offset, variable.count);
    if (tensor.is_same()) {  // true for most of a large network
      writer.Write(std::as_bytes(ours));
      continue;
    }
    values.resize(variable.count);
    tensor.ToTorch(ours, values);
    writer.Write(std::as_bytes(std::span(values)));
  }
  writer.Commit();
}

}  // namespace muster
