#include "common/model/torch_tensors.h"

#include <algorithm>
#include <set>

#include "common/base/error.h"
#include "common/base/text.h"

namespace muster {
namespace {

TorchTensor::Arrangement InOrder(int64_t count, FeatureOrder order = {}) {
  return {.columns = count, .order = std::move(order)};
}

}  // namespace

std::string TorchTensor::ShapeString() const { return "[" + Join(shape_, ",") + "]"; }

size_t TorchTensor::count() const {
  return static_cast<size_t>(arrangement_.rows * arrangement_.pixels * arrangement_.columns);
}

// Calls copy(PyTorch's index, Muster's index) for every element.
template <typename Copy>
void TorchTensor::ForEach(const Copy& copy) const {
  const auto& [rows, pixels, columns, order] = arrangement_;
  size_t torch = 0;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t j = 0; j < columns; ++j) {
      const int64_t column = order.empty() ? j : order[static_cast<size_t>(j)];
      const int64_t ours = row * pixels * columns + column;
      for (int64_t pixel = 0; pixel < pixels; ++pixel) {
        copy(torch++, static_cast<size_t>(ours + pixel * columns));
      }
    }
  }
}

void TorchTensor::ToTorch(std::span<const float> ours, std::span<float> torch) const {
  MUSTER_CHECK(ours.size() == count() && torch.size() == count());
  ForEach([&](size_t to, size_t from) { torch[to] = ours[from]; });
}

void TorchTensor::FromTorch(std::span<const float> torch, std::span<float> ours) const {
  MUSTER_CHECK(ours.size() == count() && torch.size() == count());
  ForEach([&](size_t from, size_t to) { ours[to] = torch[from]; });
}

TorchTensors::TorchTensors(const Graph& graph) {
  const FeatureOrders orders(graph);
  flattens_channels_first_ = orders.flattens_channels_first();
  Add(graph, orders, /*dots=*/true);
  std::set<std::string> names(counters_.begin(), counters_.end());
  for (const TorchTensor& tensor : tensors_) names.insert(tensor.name());
  // "a/b" and "a.b" are different layers whose names would be the same.
  if (names.size() < tensors_.size() + counters_.size()) Add(graph, orders, /*dots=*/false);
}

void TorchTensors::Add(const Graph& graph, const FeatureOrders& orders, bool dots) {
  tensors_.clear();
  counters_.clear();
  if (graph.layers().empty()) {  // the variables of a program that trains its own model
    for (size_t i = 0; i < graph.variables().size(); ++i) {
      const Variable& variable = graph.variables()[i];
      tensors_.emplace_back(variable.name, variable.shape, static_cast<int>(i),
                            InOrder(static_cast<int64_t>(variable.count)));
    }
    return;
  }
  for (const Layer& layer : graph.layers()) {
    std::string name = layer.name;
    if (dots) std::ranges::replace(name, '/', '.');
    const auto add = [&](const char* suffix, int variable, std::vector<int64_t> shape,
                         TorchTensor::Arrangement arrangement) {
      tensors_.emplace_back(name + "." + suffix, std::move(shape), variable,
                            std::move(arrangement));
    };
    if (layer.weights >= 0) {
      const auto& shape = graph.variables()[static_cast<size_t>(layer.weights)].shape;
      if (shape.size() == 4) {
        add("weight", layer.weights, {shape[0], shape[3], shape[1], shape[2]},
            {.rows = shape[0],
             .pixels = shape[1] * shape[2],
             .columns = shape[3],
             .order = orders.OfInput(layer)});
      } else {
        add("weight", layer.weights, shape,
            {.rows = shape[0], .columns = shape[1], .order = orders.OfFlattenedInput(layer)});
      }
      if (layer.bias >= 0) add("bias", layer.bias, {shape[0]}, InOrder(shape[0]));
    }
    if (layer.scale < 0) continue;
    const int64_t channels = layer.input_shape.channels;
    const auto add_channels = [&](const char* suffix, int variable) {
      add(suffix, variable, {channels}, InOrder(channels, orders.OfInput(layer)));
    };
    add_channels("weight", layer.scale);
    add_channels("bias", layer.shift);
    if (layer.running_mean < 0) continue;
    add_channels("running_mean", layer.running_mean);
    add_channels("running_var", layer.running_variance);
    counters_.push_back(name + ".num_batches_tracked");
  }
}

}  // namespace muster
