// The variables of a network as they appear in the state_dict of the same network in PyTorch:
// names, shapes and the order of elements.
//
//   layer            Muster                                  PyTorch
//   conv2d           weights [out, height, width, in]        weight [out, in, height, width]
//   dense            weights [out, in]                       weight [out, in], the columns in the
//                                                            order of feature_order.h
//   both             bias                                    bias
//   normalisations   scale, shift                            weight, bias
//   batch_norm       running_mean, running_variance          running_mean, running_var
//                    (the number of updates)                 num_batches_tracked
//
// The variables of a program that trains its own model stay as they are.
//
// A tensor's name is the layer's, '/' replaced by '.', then '.', then the name in the table.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/graph/graph.h"
#include "common/model/feature_order.h"

namespace muster {

class TorchTensor {
 public:
  // Maps PyTorch's index [row, column, pixel] to Muster's [row, pixel, order[column]].
  struct Arrangement {
    int64_t rows = 1, pixels = 1, columns = 1;
    FeatureOrder order;  // of the columns; empty: the same order
  };
  TorchTensor(std::string name, std::vector<int64_t> shape, int variable, Arrangement arrangement)
      : name_(std::move(name)),
        shape_(std::move(shape)),
        variable_(variable),
        arrangement_(std::move(arrangement)) {}

  const std::string& name() const { return name_; }
  const std::vector<int64_t>& shape() const { return shape_; }  // in PyTorch
  std::string ShapeString() const;
  // Index into Graph::variables().
  int variable() const { return variable_; }
  size_t count() const;

  // Whether Muster and PyTorch store the elements in the same order.
  bool is_same() const { return arrangement_.pixels == 1 && arrangement_.order.empty(); }
  // Copy all elements from one order to the other.
  void ToTorch(std::span<const float> ours, std::span<float> torch) const;
  void FromTorch(std::span<const float> torch, std::span<float> ours) const;

 private:
  template <typename Copy>
  void ForEach(const Copy& copy) const;

  std::string name_;
  std::vector<int64_t> shape_;
  int variable_;
  Arrangement arrangement_;
};

class TorchTensors {
 public:
  explicit TorchTensors(const Graph& graph);

  // In the order of a state_dict, layer by layer. Names are unique.
  const std::vector<TorchTensor>& tensors() const { return tensors_; }
  // The names of num_batches_tracked, one per batch norm.
  const std::vector<std::string>& counters() const { return counters_; }
  // See FeatureOrders::flattens_channels_first.
  bool flattens_channels_first() const { return flattens_channels_first_; }

 private:
  void Add(const Graph& graph, const FeatureOrders& orders, bool dots);

  std::vector<TorchTensor> tensors_;
  std::vector<std::string> counters_;
  bool flattens_channels_first_;
};

}  // namespace muster
