// In which order a PyTorch network of the same layers holds the channels of each output.
//
// Muster keeps an image as height x width x channels, PyTorch as channels x height x width. That
// only shows where an image becomes a row of features: each then counts them in its own order, and
// whatever reads or normalises the row has its columns in that order, until a dense layer or a
// convolution makes new channels.
#pragma once

#include <cstdint>
#include <vector>

#include "common/graph/graph.h"

namespace muster {

// Place i of PyTorch's is place order[i] of Muster's. Empty: the same.
using FeatureOrder = std::vector<int64_t>;

class FeatureOrders {
 public:
  explicit FeatureOrders(const Graph& graph);

  // Of the channels that a layer reads (its first input).
  const FeatureOrder& OfInput(const Layer& layer) const;
  // Of the features of a dense layer, which flattens what it reads.
  FeatureOrder OfFlattenedInput(const Layer& layer) const;

  // False: some layer depends on the order itself (local response normalisation of a row that was
  // an image, a sum of two rows in different orders, classes that are pixels). Then all orders are
  // Muster's, and a PyTorch network must move channels last before it flattens.
  bool flattens_channels_first() const { return flattens_channels_first_; }

 private:
  std::vector<FeatureOrder> outputs_;  // of each layer
  FeatureOrder natural_;
  bool flattens_channels_first_ = true;
};

}  // namespace muster
