#include "common/graph/graph.h"

#include <fmt/core.h>

#include "common/base/join.h"

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

std::vector<std::string> Describe(const Shape& input, const std::vector<Layer>& layers,
                                  const std::vector<Variable>& variables) {
  std::vector<std::string> lines{"input " + input.ToString()};
  for (const Layer& layer : layers) {
    std::vector<std::string> inputs;
    for (const int from : layer.inputs) {
      inputs.push_back(from == Layer::kData ? "data" : layers[from].name);
    }
    lines.push_back(fmt::format("{} {} reads {} {} output {}", layer.name, layer.kind,
                                Join(inputs, ","), std::visit(SpecPrinter{}, layer.spec),
                                layer.output_shape.ToString()));
  }
  for (const Variable& variable : variables) {
    lines[variable.layer + 1] += fmt::format(" {} {}", variable.name, variable.ShapeString());
  }
  return lines;
}

}  // namespace

bool Layer::is_loss() const {
  return std::holds_alternative<SoftmaxCrossEntropySpec>(spec) ||
         std::holds_alternative<MeanSquaredErrorSpec>(spec);
}

Graph::Graph(const Shape& input, std::vector<Layer> layers, std::vector<Variable> variables)
    : input_shape_(input), layers_(std::move(layers)) {
  std::vector<std::string> description = Describe(input, layers_, variables);
  layout_ = VariableLayout(std::move(variables), std::move(description));
}

int64_t Graph::classes() const { return layers_.back().input_shape.channels; }

double Graph::forward_flops() const {
  double flops = 0;
  for (const Layer& layer : layers_) flops += layer.forward_flops;
  return flops;
}

}  // namespace muster
