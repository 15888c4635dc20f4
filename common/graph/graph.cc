#include "common/graph/graph.h"

#include <fmt/core.h>

#include "common/base/text.h"

namespace muster {
namespace {

std::vector<std::string> Describe(const Shape& input, const std::vector<Layer>& layers,
                                  const std::vector<Variable>& variables) {
  std::vector<std::string> lines{"input " + input.ToString()};
  for (const Layer& layer : layers) {
    std::vector<std::string> inputs;
    for (const int from : layer.inputs) {
      inputs.push_back(from == Layer::kData ? "data" : layers[from].name);
    }
    lines.push_back(fmt::format("{} {} reads {} {} output {}{}", layer.name, layer.kind,
                                Join(inputs, ","), NumbersOf(layer.spec),
                                layer.output_shape.ToString(), layer.frozen ? " frozen" : ""));
  }
  for (const Variable& variable : variables) {
    lines[variable.layer + 1] += fmt::format(" {} {}", variable.name, variable.ShapeString());
  }
  return lines;
}

}  // namespace

Graph::Graph(const Shape& input, std::vector<Layer> layers, std::vector<Variable> variables)
    : input_shape_(input), layers_(std::move(layers)) {
  std::vector<std::string> description = Describe(input, layers_, variables);
  layout_ = VariableLayout(std::move(variables), std::move(description));
}

int64_t Graph::outputs() const { return layers_.empty() ? 0 : layers_.back().input_shape.channels; }

int64_t Graph::classes() const {
  return layers_.empty() ? 0 : outputs() + layers_.back().first_class();
}

double Graph::forward_flops() const {
  double flops = 0;
  for (const Layer& layer : layers_) flops += layer.forward_flops;
  return flops;
}

}  // namespace muster
