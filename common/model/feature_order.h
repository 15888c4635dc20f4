// Computes the order in which a PyTorch network with the same layers stores the channels of each
// output.
//
// Muster stores an image as height x width x channels, PyTorch as channels x height x width. The
// difference matters only where an image is flattened to a row of features, because each of the two
// flattens in its own order. Layers that read or normalise the row have their columns in that
// order, until a dense layer or a convolution creates new channels.
#pragma once

#include <cstdint>
#include <vector>

#include "common/graph/graph.h"

namespace muster {

// Position i in PyTorch is position order[i] in Muster. Empty: the same order.
using FeatureOrder = std::vector<int64_t>;

class FeatureOrders {
 public:
  explicit FeatureOrders(const Graph& graph);

  // The order of the channels that a layer reads from its first input.
  const FeatureOrder& OfInput(const Layer& layer) const;
  // The order of the input features of a dense layer, which flattens its input.
  FeatureOrder OfFlattenedInput(const Layer& layer) const;

  // False if some layer depends on the order itself: local response normalisation of a flattened
  // image, or normalisation of several groups of it, a sum of two rows in different orders, or
  // pixels as classes. All orders are then Muster's, and a PyTorch network must permute to
  // channels-last before it flattens.
  bool flattens_channels_first() const { return flattens_channels_first_; }

 private:
  std::vector<FeatureOrder> outputs_;  // of each layer
  FeatureOrder natural_;
  bool flattens_channels_first_ = true;
};

}  // namespace muster
