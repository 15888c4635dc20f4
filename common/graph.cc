#include "common/graph.h"

#include <xxhash.h>

#include "common/graph_builder.h"
#include "common/join.h"

namespace muster {
namespace {

// How each layer's numbers enter the description that workers and server compare.
struct SpecPrinter {
  std::string operator()(const Conv2dSpec& s) const {
    return fmt::format("filters {} {} groups {}", s.filters, Window(s), s.groups);
  }
  std::string operator()(const DenseSpec& s) const { return fmt::format("units {}", s.units); }
  std::string operator()(const PoolSpec& s) const { return Window(s); }
  std::string operator()(const LrnSpec& s) const {
    return fmt::format("depth_radius {} bias {} alpha {} beta {}", s.depth_radius, s.bias, s.alpha,
                       s.beta);
  }
  std::string operator()(const DropoutSpec& s) const { return fmt::format("rate {}", s.rate); }
  std::string operator()(const BatchNormSpec& s) const {
    return fmt::format("momentum {} epsilon {} unbiased {}", s.momentum, s.epsilon, s.unbiased);
  }
  std::string operator()(const SoftmaxCrossEntropySpec& s) const {
    return fmt::format("label_smoothing {}", s.label_smoothing);
  }
  template <typename T>
  std::string operator()(const T&) const {
    return "";
  }

  template <typename S>
  static std::string Window(const S& s) {
    return fmt::format("kernel {}x{} stride {}x{} pads {},{},{},{}", s.kernel_height,
                       s.kernel_width, s.stride_height, s.stride_width, s.pads.top, s.pads.bottom,
                       s.pads.left, s.pads.right);
  }
};

}  // namespace

std::string Variable::ShapeString() const { return "[" + Join(shape, ",") + "]"; }

bool Layer::is_loss() const {
  return std::holds_alternative<SoftmaxCrossEntropySpec>(spec) ||
         std::holds_alternative<MeanSquaredErrorSpec>(spec);
}

Graph Graph::Build(const config::Model& model, const Shape& input) {
  GraphBuilder builder(input);
  for (const config::Layer& layer : model.layer()) builder.Add(layer);
  builder.Finish();
  Graph graph;
  graph.input_shape_ = input;
  graph.layers_ = std::move(builder.layers);
  graph.variables_ = std::move(builder.variables);
  graph.arena_floats_ = builder.arena_floats;
  return graph;
}

int64_t Graph::parameter_count() const {
  size_t count = 0;
  for (const Variable& variable : variables_) {
    if (variable.kind != Variable::Kind::kStatistic) count += variable.count;
  }
  return static_cast<int64_t>(count);
}

int64_t Graph::classes() const { return layers_.back().input_shape.channels; }

double Graph::forward_flops() const {
  double flops = 0;
  for (const Layer& layer : layers_) flops += layer.forward_flops;
  return flops;
}

std::vector<std::string> Graph::Describe() const {
  std::vector<std::string> lines{"input " + input_shape_.ToString()};
  for (const Layer& layer : layers_) {
    std::vector<std::string> inputs;
    for (const int input : layer.inputs) {
      inputs.push_back(input == Layer::kData ? "data" : layers_[input].name);
    }
    lines.push_back(fmt::format("{} {} reads {} {} output {}", layer.name, layer.kind,
                                Join(inputs, ","), std::visit(SpecPrinter{}, layer.spec),
                                layer.output_shape.ToString()));
  }
  for (const Variable& variable : variables_) {
    lines[variable.layer + 1] += fmt::format(" {} {}", variable.name, variable.ShapeString());
  }
  return lines;
}

uint64_t Graph::Hash() const {
  const std::string text = Join(Describe(), "\n");
  return XXH3_64bits(text.data(), text.size());
}

}  // namespace muster
