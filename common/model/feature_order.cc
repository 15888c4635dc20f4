#include "common/model/feature_order.h"

#include <algorithm>
#include <optional>
#include <variant>

namespace muster {
namespace {

FeatureOrder Flattened(const Shape& shape, const FeatureOrder& channels) {
  if (shape.height * shape.width == 1 || (shape.channels == 1 && channels.empty())) return channels;
  FeatureOrder order;
  order.reserve(static_cast<size_t>(shape.elements()));
  for (int64_t c = 0; c < shape.channels; ++c) {
    const int64_t channel = channels.empty() ? c : channels[static_cast<size_t>(c)];
    for (int64_t pixel = 0; pixel < shape.height * shape.width; ++pixel) {
      order.push_back(pixel * shape.channels + channel);
    }
  }
  return order;
}

// Computes the order of a layer's output from those of its inputs; empty if another order would
// change the layer's result. There is deliberately one overload per kind of layer, so that a new
// kind cannot be forgotten.
class OutputOrder {
 public:
  using Result = std::optional<FeatureOrder>;
  OutputOrder(const Layer& layer, std::vector<const FeatureOrder*> inputs)
      : layer_(layer), inputs_(std::move(inputs)) {}

  Result operator()(const Conv2dSpec& conv) const {
    return conv.groups == 1 ? FeatureOrder() : OnlyNatural();
  }
  Result operator()(const DenseSpec&) const { return FeatureOrder(); }
  Result operator()(const GroupNormSpec& norm) const {
    return norm.groups == 1 ? Result(First()) : OnlyNatural();
  }
  Result operator()(const FlattenSpec&) const { return Flattened(layer_.input_shape, First()); }
  Result operator()(const ConcatSpec& concat) const {
    FeatureOrder order;
    int64_t begin = 0;
    bool natural = true;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const FeatureOrder& input = *inputs_[i];
      natural = natural && input.empty();
      for (int64_t c = 0; c < concat.channels[i]; ++c) {
        order.push_back(begin + (input.empty() ? c : input[static_cast<size_t>(c)]));
      }
      begin += concat.channels[i];
    }
    return natural ? FeatureOrder() : order;
  }
  Result operator()(const AddSpec&) const {
    const bool same = std::ranges::all_of(
        inputs_, [this](const FeatureOrder* order) { return *order == First(); });
    return same ? Result(First()) : std::nullopt;
  }
  // These layers depend on the positions of channels: their neighbours, or their classes.
  Result operator()(const LrnSpec&) const { return OnlyNatural(); }
  Result operator()(const SoftmaxCrossEntropySpec&) const { return OnlyNatural(); }
  Result operator()(const MeanSquaredErrorSpec&) const { return OnlyNatural(); }
  Result operator()(const SigmoidCrossEntropySpec&) const { return OnlyNatural(); }
  // These layers handle each channel separately, or all channels in the same way.
  Result operator()(const ElementwiseSpec auto&) const { return First(); }
  Result operator()(const PoolSpec&) const { return First(); }
  Result operator()(const ReflectPadSpec&) const { return First(); }
  Result operator()(const GlobalAvgPoolSpec&) const { return First(); }
  Result operator()(const BatchNormSpec&) const { return First(); }
  Result operator()(const DropoutSpec&) const { return First(); }
  Result operator()(const SoftmaxSpec&) const { return First(); }

 private:
  const FeatureOrder& First() const { return *inputs_[0]; }
  Result OnlyNatural() const { return First().empty() ? Result(FeatureOrder()) : std::nullopt; }

  const Layer& layer_;
  const std::vector<const FeatureOrder*> inputs_;
};

}  // namespace

FeatureOrders::FeatureOrders(const Graph& graph) {
  outputs_.reserve(graph.layers().size());
  for (const Layer& layer : graph.layers()) {
    std::vector<const FeatureOrder*> inputs;
    for (const int input : layer.inputs) {
      inputs.push_back(input == Layer::kData ? &natural_ : &outputs_[static_cast<size_t>(input)]);
    }
    std::optional<FeatureOrder> order =
        std::visit(OutputOrder(layer, std::move(inputs)), layer.spec);
    if (!order) {
      flattens_channels_first_ = false;
      outputs_.assign(graph.layers().size(), {});
      return;
    }
    outputs_.push_back(std::move(*order));
  }
}

const FeatureOrder& FeatureOrders::OfInput(const Layer& layer) const {
  const int input = layer.inputs[0];
  return input == Layer::kData ? natural_ : outputs_[static_cast<size_t>(input)];
}

FeatureOrder FeatureOrders::OfFlattenedInput(const Layer& layer) const {
  return flattens_channels_first_ ? Flattened(layer.input_shape, OfInput(layer)) : FeatureOrder();
}

}  // namespace muster
